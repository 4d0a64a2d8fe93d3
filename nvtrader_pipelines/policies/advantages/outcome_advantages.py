"""Advantages without a critic, from the outcomes of episodes: GRPO and REINFORCE++."""

from typing import ClassVar, Literal

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.policies.advantages.episodes import Episodes, Estimate

DEVIATION_EPSILON = 1e-6  # as in NeMo-RL, added to a group's deviation


class GrpoAdvantage(Component):
    """Outcome of the episode standardized within its group (Shao et al. 2024), for all its steps.

    As in NeMo-RL, an outcome whose baseline set has no deviation stays unscaled: with leave-one-out, every outcome in
    a group of two, and a single outlier among equals.
    """

    uses_critic: ClassVar[bool] = False
    min_group_size: ClassVar[int] = 2

    kind: Literal["grpo"] = "grpo"
    aliases: ClassVar[tuple[str, ...]] = ("GRPOAdvantage",)
    normalize: bool = True  # divide by the group's standard deviation
    leave_one_out: bool = False  # compare each outcome with the others of its group only

    def estimate(self, episodes: Episodes, gamma: float) -> Estimate:  # noqa: ARG002 - one signature for the family
        """Estimate one advantage per episode, repeated at every step, masked steps included."""
        import torch

        from nvtrader_pipelines.policies.advantages.groups import group_baseline

        outcomes = episodes.outcomes
        baseline, deviation = group_baseline(outcomes, episodes.groups, leave_one_out=self.leave_one_out)
        advantages = outcomes - baseline
        if self.normalize:
            advantages = torch.where(deviation > 0.0, advantages / (deviation + DEVIATION_EPSILON), advantages)
        return Estimate(advantages[:, None].expand_as(episodes.mask))


class ReinforcePlusPlusAdvantage(Component):
    """Outcome of the episode less a baseline, normalized over all steps of an update (Hu 2025).

    It is not divided by the deviation of a group, so groups with nearly equal outcomes are not amplified.
    """

    uses_critic: ClassVar[bool] = False

    kind: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"
    aliases: ClassVar[tuple[str, ...]] = ("ReinforcePlusPlusAdvantage",)
    baseline: Literal["group_mean", "leave_one_out", "none"] = "group_mean"
    global_normalization: bool = True  # to mean 0 and variance 1 over all steps of an update

    @property
    def min_group_size(self) -> int:
        """Minimum number of episodes in a group."""
        return 1 if self.baseline == "none" else 2

    def estimate(self, episodes: Episodes, gamma: float) -> Estimate:  # noqa: ARG002 - one signature for the family
        """Estimate one advantage per episode, repeated at every step, masked steps included."""
        from nvtrader_pipelines.policies.advantages.groups import group_baseline
        from nvtrader_pipelines.policies.advantages.masked import normalize

        advantages = episodes.outcomes
        if self.baseline != "none":
            leave_one_out = self.baseline == "leave_one_out"
            advantages = advantages - group_baseline(advantages, episodes.groups, leave_one_out=leave_one_out)[0]
        per_step = advantages[:, None].expand_as(episodes.mask)
        return Estimate(normalize(per_step, episodes.mask) if self.global_normalization else per_step)
