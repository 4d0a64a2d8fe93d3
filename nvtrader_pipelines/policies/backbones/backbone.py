"""Plain MLP, and the base classes of backbones: an extractor below two heads, or scores of names."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations import ObservationLayout

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import Tensor, nn

    from nvtrader_pipelines.policies.networks.gaussian_policy import NameScoresPolicy

OPTIMIZER = {"fused": True, "eps": 1e-5}  # fused Adam is 15-20 % faster for small networks


class TrainingHistory(NamedTuple):
    """Sessions of the training windows, for the pretraining of a backbone."""

    observations: "Tensor"  # (T, length) of an account in cash
    next_returns: "Tensor"  # (T, N) close to next close; NaN without a price, and at the end of a window


class ExtractorBackbone(Component):
    """Feature extractor below separate actor and critic MLPs with tanh; the plain MLP has no extractor.

    Actor and critic of an on-policy agent share the extractor, which learns from both losses at half the cost.
    """

    needs_window: ClassVar[bool] = False  # reads the observation's window of past returns

    hidden: tuple[PositiveInt, ...] = (64, 64)  # layers of each head

    def extractor(self, layout: ObservationLayout) -> dict[str, Any]:  # noqa: ARG002 - one signature for the family
        """SB3's `features_extractor_class` and `features_extractor_kwargs`; empty for raw observations."""
        return {}

    def actor_critic(
        self, layout: ObservationLayout, log_std_init: float
    ) -> tuple["type[ActorCriticPolicy]", dict[str, Any]]:
        """SB3 policy class of an on-policy agent, and its keyword arguments."""
        from nvtrader_pipelines.policies.networks.gaussian_policy import GaussianPolicy

        return GaussianPolicy, {**self.heads(layout), "log_std_init": log_std_init}

    def heads(self, layout: ObservationLayout) -> dict[str, Any]:
        """Keyword arguments of an actor-critic's network."""
        from torch import nn

        layers = list(self.hidden)
        return {
            "net_arch": {"pi": layers, "vf": layers},
            "activation_fn": nn.Tanh,
            "ortho_init": True,
            "share_features_extractor": True,
            "optimizer_kwargs": OPTIMIZER,
            **self.extractor(layout),
        }

    def prepare(self, policy: "nn.Module", history: TrainingHistory, seed: int) -> None:
        """Pretrain on the training windows; by default, nothing."""


class MlpBackbone(ExtractorBackbone):
    """Separate actor and critic MLPs with tanh, on any observation."""

    kind: Literal["mlp"] = "mlp"


class NameScoresBackbone(Component):
    """Network shared by all names, whose mean action is one score for each name and one more value."""

    needs_window: ClassVar[bool] = False  # reads the observation's window of past returns
    observations: ClassVar[tuple[str, ...]]  # kinds whose columns it knows

    @abstractmethod
    def policy_class(self) -> "type[NameScoresPolicy]":
        """SB3 policy class, whose network has the fields as sizes."""

    def actor_critic(
        self, layout: ObservationLayout, log_std_init: float
    ) -> tuple["type[ActorCriticPolicy]", dict[str, Any]]:
        """SB3 policy class of an on-policy agent, and its keyword arguments."""
        settings = {"log_std_init": log_std_init, "ortho_init": False, "optimizer_kwargs": OPTIMIZER}
        return self.policy_class(), {"layout": layout, "sizes": self.model_dump(exclude={"kind"}), **settings}

    def prepare(self, policy: "nn.Module", history: TrainingHistory, seed: int) -> None:
        """Do nothing: these backbones have no pretraining."""


def require_divisible(d_model: int, n_heads: int) -> None:
    """Raise unless the heads split the columns of a token equally.

    Raises:
        ValueError: if d_model is not a multiple of n_heads.
    """
    if d_model % n_heads:
        raise ValueError(f"d_model must be a multiple of n_heads, but they are {d_model} and {n_heads}; change one")
