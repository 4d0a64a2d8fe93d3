"""Backbones of agents that execute orders."""

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import Component

InitialStd = Annotated[float, Field(ge=0.01, le=1.0)]


class EteoDualHead(Component):
    """MLP with one head for the mean of the action and one for its deviation (ETEO); another MLP for the value.

    The heads of a price are left out: orders here are market orders.

    Source: Lin & Beling (2020), as in TradeMaster.
    """

    kind: Literal["eteo_dual_head"] = "eteo_dual_head"
    hidden: tuple[PositiveInt, ...] = (128, 128)  # layers of each MLP
    initial_std: InitialStd = 0.2  # initial deviation of an action, as a share of its range

    def settings(self) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        from torch import nn

        layers = list(self.hidden)
        return {"net_arch": {"pi": layers, "vf": layers}, "activation_fn": nn.Tanh, "initial_std": self.initial_std}


class PdDualRnn(Component):
    """Two recurrent networks below both heads and the value: one reads the moves, one the order's own state (OPD).

    The second reads one step, as earlier states of the order are no part of an observation.

    Source: Fang et al. (2021), Universal Trading for Order Execution with Oracle Policy Distillation.
    """

    kind: Literal["pd_dual_rnn"] = "pd_dual_rnn"
    hidden_size: PositiveInt = 32  # of each network
    initial_std: InitialStd = 0.2  # initial deviation of an action, as a share of its range

    def settings(self) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        from torch import nn

        from nvtrader_pipelines.policies.networks.execution_policy import DualRnnExtractor

        extractor: dict[str, Any] = {"hidden_size": self.hidden_size}
        return {
            "net_arch": {"pi": [], "vf": []},
            "activation_fn": nn.Tanh,
            "features_extractor_class": DualRnnExtractor,
            "features_extractor_kwargs": extractor,
            "initial_std": self.initial_std,
        }


ExecutionBackbone = Annotated[EteoDualHead | PdDualRnn, Field(discriminator="kind")]
