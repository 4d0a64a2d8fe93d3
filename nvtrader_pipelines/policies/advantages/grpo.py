"""Group relative policy optimisation's advantage."""

from typing import ClassVar, Literal

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.policies.advantages.episodes import Episodes, Estimate

DEVIATION_EPSILON = 1e-6  # NeMo-RL's, added to a group's deviation


class GrpoAdvantage(Component):
    """An episode's outcome less its group's mean, in deviations of the group (Shao et al. 2024), for all its steps.

    As in NeMo-RL, an outcome whose baseline set does not deviate stays unscaled: with leave-one-out that is every
    outcome in a group of two, and one outlier among equals.
    """

    uses_critic: ClassVar[bool] = False
    least_group_size: ClassVar[int] = 2

    kind: Literal["grpo"] = "grpo"
    normalize: bool = True  # divide by the group's standard deviation
    leave_one_out: bool = False  # compare each outcome with the others of its group only

    def estimate(self, episodes: Episodes, gamma: float) -> Estimate:  # noqa: ARG002 - one signature for the family
        """The same advantage at every step of an episode; steps under the mask hold it too."""
        import torch

        from nvtrader_pipelines.policies.advantages.groups import group_baseline

        outcomes = episodes.outcomes
        baseline, deviation = group_baseline(outcomes, episodes.groups, leave_one_out=self.leave_one_out)
        advantages = outcomes - baseline
        if self.normalize:
            advantages = torch.where(deviation > 0.0, advantages / (deviation + DEVIATION_EPSILON), advantages)
        return Estimate(advantages[:, None].expand_as(episodes.mask))
