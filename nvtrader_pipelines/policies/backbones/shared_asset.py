"""Small network shared by all names."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER, TrainingHistory

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import nn


class SharedAssetBackbone(Component):
    """Small shared network that scores each name from its own columns and the context.

    It needs the per-asset observation. Scores are centered across names and the last layers start near zero, so a
    residual policy starts at its anchor.
    """

    needs_window: ClassVar[bool] = False

    kind: Literal["shared_asset"] = "shared_asset"
    asset_hidden: tuple[PositiveInt, PositiveInt] = (16, 8)
    context_hidden: PositiveInt = 16
    critic_hidden: PositiveInt = 32

    def actor_critic(
        self,
        layout: ObservationLayout,  # noqa: ARG002 - one signature for the family
        log_std_init: float,
    ) -> tuple["type[ActorCriticPolicy]", dict[str, Any]]:
        """SB3 policy class of an on-policy agent, and its keyword arguments."""
        from nvtrader_pipelines.policies.networks.shared_asset_network import SharedAssetPolicy

        return SharedAssetPolicy, {
            "sizes": {
                "asset_hidden": self.asset_hidden,
                "context_hidden": self.context_hidden,
                "critic_hidden": self.critic_hidden,
            },
            "log_std_init": log_std_init,
            "ortho_init": False,
            "optimizer_kwargs": OPTIMIZER,
        }

    def prepare(self, policy: "nn.Module", history: TrainingHistory, seed: int) -> None:
        """Do nothing: this backbone has no pretraining."""
