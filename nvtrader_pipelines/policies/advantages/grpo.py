"""Advantage of group relative policy optimization."""

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
