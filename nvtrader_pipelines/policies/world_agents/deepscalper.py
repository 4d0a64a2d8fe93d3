"""DeepScalper: DQN on one asset whose reward in training looks ahead."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from nvtrader_pipelines.market.panel import MarketPanel, Window, window_mask
from nvtrader_pipelines.policies.agents.learner import no_optimizer
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER
from nvtrader_pipelines.policies.world_agents.dqn import DqnLearner
from nvtrader_pipelines.worlds.single_asset import SingleAsset, SingleAssetSimulation
from nvtrader_pipelines.worlds.world import World, WorldStep

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3 import DQN
    from stable_baselines3.common.policies import BasePolicy
    from torch import Tensor
    from torch.optim import Optimizer


class DeepScalperAgent(DqnLearner):
    """DQN over the positions of one asset, with a hindsight bonus in training.

    The bonus of a decision is its position times the return of the next sessions, to the end of the training at most.
    Branches and the auxiliary risk task of the paper are left out, as in TradeMaster's code. Weights decay, since a
    market has few sessions, which a network learns by heart.

    Source: Sun et al. (2022), DeepScalper, as in TradeMaster.
    """

    worlds: ClassVar[tuple[str, ...]] = ("tradesim_algotrading", "finagent_trading")

    kind: Literal["deepscalper"] = "deepscalper"
    total_timesteps: NonNegativeInt = 30_000  # steps of all accounts together
    weight_decay: NonNegativeFloat = 5.0  # AdamW's, of all but biases
    hindsight_weight: NonNegativeFloat = 0.2  # of the bonus, beside the step's own reward
    hindsight_sessions: PositiveInt = 5
    hidden: tuple[PositiveInt, ...] = (128, 64)

    def model(self, world: World, panel: MarketPanel | None, window: Window | None, seed: int) -> "DQN":
        """Return DQN on accounts with the hindsight bonus."""
        from stable_baselines3 import DQN

        assert isinstance(world, SingleAsset)
        assert panel is not None
        simulation = HindsightSimulation(panel, world, self.n_envs, window)
        simulation.look_ahead(self.hindsight_weight, self.hindsight_sessions)
        optimizer = {
            "optimizer_class": weight_decaying_adam,
            "optimizer_kwargs": {"weight_decay": self.weight_decay},
        }
        return self.dqn(DQN, "MlpPolicy", simulation, seed, **self._heads(), **optimizer)

    def network(self, observation_space: "spaces.Box", action_space: "spaces.Space[Any]") -> "BasePolicy":
        """Build the network of values."""
        from stable_baselines3.dqn.policies import DQNPolicy

        return DQNPolicy(
            observation_space,
            action_space,  # pyright: ignore[reportArgumentType] - `Discrete` in the worlds of this agent
            lambda _: 0.0,
            **self._heads(),
            optimizer_class=no_optimizer,  # pyright: ignore[reportArgumentType] - nothing is optimized
        )

    def _heads(self) -> dict[str, Any]:
        from torch import nn

        return {"net_arch": list(self.hidden), "activation_fn": nn.ReLU}


def weight_decaying_adam(parameters: "Iterable[Tensor]", lr: float, weight_decay: float) -> "Optimizer":
    """Return AdamW that decays matrices and leaves biases, which hold the level of the values."""
    from torch.optim import AdamW

    matrices, biases = list[Any](), list[Any]()
    for parameter in parameters:
        (matrices if parameter.ndim > 1 else biases).append(parameter)
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": biases, "weight_decay": 0.0}]
    return AdamW(groups, lr=lr, weight_decay=weight_decay, **OPTIMIZER)


class HindsightSimulation(SingleAssetSimulation):
    """Simulation whose reward looks ahead; for training alone, on a panel that ends with it.

    Terms are in standard deviations of the windows' returns, so that an agent's settings suit calm and wild names.
    """

    def look_ahead(self, weight: float, n_sessions: int) -> None:
        """Set the bonus of a long position by session of the decision: weighted return of the next sessions.

        Where orders fill at the next close, it misses the first return, as the position does.
        """
        returns = np.log1p(self.panel.close_returns[:, 0])
        inside = window_mask(self.windows, len(returns)) & self.panel.tradable[:, 0]
        self._deviation = (returns[inside].std() if inside.any() else 0.0) or 1.0
        growth, t = np.cumsum(returns), np.arange(len(returns))
        first, last = t + (self.accounts.fill == "next_close"), np.minimum(t + n_sessions, self.windows[-1][1])
        self._bonus: NDArray[np.float64] = weight * np.expm1(growth[last] - growth[np.minimum(first, last)])

    def step(self, actions: NDArray[Any]) -> WorldStep:
        """Trade every account; the reward has the bonus of its position."""
        decided_at = self.accounts.t
        step = super().step(actions)
        terms = {**step.terms, "hindsight": self._bonus[decided_at] * step.info["position"]}
        return step._replace(terms={name: term / self._deviation for name, term in terms.items()})
