"""sb3-contrib's TQC on the native vector environment."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.sac import SoftTargetLearner

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from torch import Tensor

    from nvtrader_pipelines.policies.agents.off_policy import Network


class TqcAgent(SoftTargetLearner):
    """TQC (Kuznetsov et al. 2020) from sb3-contrib: slow to train; defaults untuned.

    SAC with distributional critics, truncated against overestimation.
    """

    kind: Literal["tqc"] = "tqc"
    n_quantiles: PositiveInt = 25  # of each critic
    top_quantiles_to_drop_per_net: NonNegativeInt = 2  # of the targets, against overestimation

    @model_validator(mode="after")
    def _require_quantiles(self) -> Self:
        if self.top_quantiles_to_drop_per_net >= self.n_quantiles:
            raise ValueError(
                f"top_quantiles_to_drop_per_net = {self.top_quantiles_to_drop_per_net} must be less than "
                f"n_quantiles = {self.n_quantiles}"
            )
        return self

    @property
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from sb3_contrib import TQC

        return TQC

    def heads(self, layout: ObservationLayout) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        return {**super().heads(layout), "n_quantiles": self.n_quantiles}

    def settings(self, n_actions: int) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        dropped = self.top_quantiles_to_drop_per_net
        return {**super().settings(n_actions), "top_quantiles_to_drop_per_net": dropped}

    def estimate(self, network: "Network", observation: "Tensor", scaled: "Tensor") -> float:
        """Value of an action scaled to [-1, 1]: the mean of all critics' quantiles."""
        return float(network.critic(observation, scaled).mean())
