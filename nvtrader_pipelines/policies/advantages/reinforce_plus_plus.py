"""REINFORCE++'s advantage."""

from typing import ClassVar, Literal

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.policies.advantages.episodes import Episodes, Estimate


class ReinforcePlusPlusAdvantage(Component):
    """An episode's outcome less a baseline, normalised over all steps of an update (Hu 2025, REINFORCE++).

    No deviation of a group divides it, so groups that are easy to tell apart do not drown out the others.
    """

    uses_critic: ClassVar[bool] = False

    kind: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"
    baseline: Literal["group_mean", "leave_one_out", "none"] = "group_mean"
    global_normalization: bool = True  # to mean 0 and variance 1 over all steps of an update

    @property
    def least_group_size(self) -> int:
        """Episodes a group needs."""
        return 1 if self.baseline == "none" else 2

    def estimate(self, episodes: Episodes, gamma: float) -> Estimate:  # noqa: ARG002 - one signature for the family
        """The same advantage at every step of an episode; steps under the mask hold it too."""
        from nvtrader_pipelines.policies.advantages.groups import group_baseline
        from nvtrader_pipelines.policies.advantages.masked import normalized

        advantages = episodes.outcomes
        if self.baseline != "none":
            leave_one_out = self.baseline == "leave_one_out"
            advantages = advantages - group_baseline(advantages, episodes.groups, leave_one_out=leave_one_out)[0]
        spread = advantages[:, None].expand_as(episodes.mask)
        return Estimate(normalized(spread, episodes.mask) if self.global_normalization else spread)
