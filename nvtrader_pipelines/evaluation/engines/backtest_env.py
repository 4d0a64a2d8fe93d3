"""Gymnasium environment of one portfolio on the account of a back-test's engine."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.accounts import RUIN
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.rewards.log_growth import log_growth
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_rows, action_space, observation_space
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines import BacktestEngine, EventDriven
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.sample import sample_panel


class RLBacktestEnv(gymnasium.Env[NDArray[Any], Any]):
    """Portfolio choice as in `PortfolioEnv`, on the account of an engine such as shares and cash.

    Observations, actions, their spaces and the starts of episodes are those of `PortfolioEnv` with the same spec. The
    reward is the log growth of equity over the step's sessions, net of costs; the spec's rewards, terminations and
    early stopping need the transition of `PortfolioEnv` and play no part. An episode is terminated when equity is 1e-6
    or less, and truncated after `episode_len` decisions or at the end of the window.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - declared by Gymnasium

    def __init__(
        self,
        panel: MarketPanel | None = None,
        spec: EnvSpec | None = None,
        engine: BacktestEngine | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        scaler: ObservationScaler | None = None,
    ) -> None:
        panel, spec = sample_panel() if panel is None else panel, spec or EnvSpec()
        self.engine = engine or EventDriven()
        self.account = self.engine.open(panel, spec, first)
        self._simulation = PortfolioSimulation(panel, spec, 1, first=first, last=last, scaler=scaler)
        self._to_weights, self._n_steps = spec.start_action(panel), 0
        self.observation_space = observation_space(self._simulation)
        self.action_space = action_space(self._simulation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode in cash, at a start drawn as by `PortfolioEnv`."""
        super().reset(seed=seed, options=options)
        simulation = self._simulation
        simulation.reset([0], [self.np_random])
        self.account = self.engine.open(simulation.panel, simulation.spec, int(simulation.accounts.t[0]))
        self._n_steps = 0
        return self._observe(), {"session": str(simulation.panel.sessions[self.account.t]), "equity": 1.0}

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Trade to the action's weights and hold to the next decision.

        Raises:
            ValueError: if the action has the wrong length or contains a NaN.
        """
        action, account, spec = np.asarray(action), self.account, self._simulation.spec
        if action.shape != self.action_space.shape:
            raise ValueError(f"an action needs shape {self.action_space.shape}, but has {action.shape}")
        rows = action_rows(self.action_space, action[None])
        held, equity = account.account.weights[None, :], np.array([account.account.equity])
        target = self._to_weights(rows, np.array([account.t]), held, equity)[0]
        closes = account.trade(target, spec.rebal_freq)
        self._n_steps += 1
        growth = np.array([[1.0 + close.net_return for close in closes]])
        is_ruined = closes[-1].equity <= RUIN
        is_over = self._n_steps >= spec.episode_len or account.t > self._simulation.last - spec.rebal_freq
        info = {
            "session": str(closes[-1].session),
            "equity": closes[-1].equity,
            "drawdown": closes[-1].drawdown,
            "turnover": sum(close.turnover for close in closes),
            "cost": sum(close.cost for close in closes),
            "weights": account.account.weights.copy(),
        }
        return self._observe(), float(log_growth(growth)[0]), is_ruined, is_over and not is_ruined, info

    def _observe(self) -> NDArray[np.float32]:
        """Observation (length,) at the last close."""
        account, t = self.account.account, np.array([self.account.t])
        view = AccountView(account.weights[None, :], np.array([1.0 - account.equity / account.peak]))
        return self._simulation.builder.observe(t, view)[0]
