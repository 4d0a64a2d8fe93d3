"""Episodes of n portfolios at once: the engine under the scalar and the vectorised environment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.accounts import RUIN, Accounts, AccountStep
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel

_ACCOUNT_ARRAYS = ("t", "weights", "equity", "peak", "recent_returns")


@dataclass(frozen=True, eq=False)
class Step:
    """What one step of n portfolios gave, before any reset."""

    observation: NDArray[np.float32]  # (n, length)
    reward: NDArray[np.float64]  # (n,)
    terminated: NDArray[np.bool_]  # (n,) equity is gone
    truncated: NDArray[np.bool_]  # (n,) the episode's length or the data's end
    target: NDArray[np.float64]  # (n, N+1)
    account: AccountStep
    struck: dict[str, NDArray[np.bool_]] = field(default_factory=dict)  # termination to where it struck, (n,)


class PortfolioSimulation:
    """n portfolios on one panel, each at its own session of its own episode.

    Args:
        panel: the market.
        spec: the environment.
        n_portfolios: how many run side by side.
        first: earliest session of a decision.
        last: latest session whose prices may be used.
        scaler: statistics for the observation, fitted on `first..last` if not given.

    Raises:
        ValueError: if the window does not hold one step.
    """

    def __init__(
        self,
        panel: MarketPanel,
        spec: EnvSpec,
        n_portfolios: int,
        *,
        first: int = 0,
        last: int | None = None,
        scaler: ObservationScaler | None = None,
    ) -> None:
        self.first, self.last = first, len(panel.sessions) - 1 if last is None else last
        if not 0 <= self.first <= self.last - spec.rebal_freq or self.last >= len(panel.sessions):
            raise ValueError(
                f"an episode needs {spec.rebal_freq} sessions after its first decision, but the window "
                f"{self.first}..{self.last} of {len(panel.sessions)} sessions does not hold them"
            )
        self.panel, self.spec = panel, spec
        self.accounts = Accounts(panel, spec, n_portfolios, t=self.first)
        self.steps = np.zeros(n_portfolios, dtype=np.int64)
        scaler = spec.observation.fit(panel, self.first, self.last) if scaler is None else scaler
        self.builder = spec.observation.start(panel, scaler, spec.lookback)
        self._map = spec.action.start(panel)

    def reset(self, portfolios: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Put the portfolios into cash at a start drawn by each one's generator; whole episodes where they fit."""
        latest = max(self.first, self.last - self.spec.rebal_freq * self.spec.episode_len)
        rows = list(portfolios)
        self.accounts.open(rows, [int(generator.integers(self.first, latest + 1)) for generator in generators])
        self.steps[rows] = 0

    def observe(self) -> NDArray[np.float32]:
        """Observations of all portfolios, (n, length)."""
        return self.builder.observe(self.accounts.t, AccountView(self.accounts.weights, self.accounts.drawdown))

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Trade every portfolio to its action's weights and hold to the next decision."""
        accounts, rebal_freq = self.accounts, self.spec.rebal_freq
        target = self._map(actions, accounts.t)
        account = accounts.trade(target, np.ones(len(target), dtype=bool), rebal_freq)
        self.steps = self.steps + 1
        terminated = accounts.equity <= RUIN
        over = (self.steps >= self.spec.episode_len) | (accounts.t + rebal_freq > self.last)
        return Step(
            observation=self.observe(),
            reward=account.reward,
            terminated=terminated,
            truncated=over & ~terminated,
            target=target,
            account=account,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """What `restore` needs to go on from here."""
        accounts = {f"accounts.{name}": getattr(self.accounts, name).copy() for name in _ACCOUNT_ARRAYS}
        return {**accounts, "steps": self.steps.copy()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a `state` of a simulation like this one."""
        for name in _ACCOUNT_ARRAYS:
            setattr(self.accounts, name, state[f"accounts.{name}"].copy())
        self.steps = state["steps"].copy()
