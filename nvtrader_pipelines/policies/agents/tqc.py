"""sb3-contrib's TQC on the native vector environment."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.sac import SoftLearner

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from torch import Tensor

    from nvtrader_pipelines.policies.agents.off_policy import Network


class TqcAgent(SoftLearner):
    """TQC (Kuznetsov et al. 2020) from sb3-contrib: slow to train; defaults untuned.

    It is SAC with critics of whole distributions, truncated against overestimation, and as many updates.
    """

    kind: Literal["tqc"] = "tqc"
    n_quantiles: PositiveInt = 25  # of each critic
    top_quantiles_to_drop_per_net: NonNegativeInt = 2  # of the targets, against overestimation

    @model_validator(mode="after")
    def _keeps_a_quantile(self) -> Self:
        if self.top_quantiles_to_drop_per_net >= self.n_quantiles:
            raise ValueError(
                f"top_quantiles_to_drop_per_net = {self.top_quantiles_to_drop_per_net} must be less than "
                f"n_quantiles = {self.n_quantiles}, or none is left"
            )
        return self

    @property
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """The library's class."""
        from sb3_contrib import TQC

        return TQC

    @property
    def policy_class(self) -> "type[Network]":
        """The class of its network."""
        from sb3_contrib.tqc.policies import TQCPolicy

        return TQCPolicy

    def heads(self, layout: ObservationLayout) -> dict[str, Any]:
        """The policy's keyword arguments."""
        return {**super().heads(layout), "n_quantiles": self.n_quantiles}

    def settings(self, n_actions: int) -> dict[str, Any]:
        """The algorithm's arguments that decide what is learned; none is left to the library's default."""
        dropped = self.top_quantiles_to_drop_per_net
        return {**super().settings(n_actions), "top_quantiles_to_drop_per_net": dropped}

    def estimate(self, network: "Network", observation: "Tensor", scaled: "Tensor") -> float:
        """What an action, scaled to [-1, 1], earns: the mean of all critics' quantiles."""
        return float(network.critic(observation, scaled).mean())
