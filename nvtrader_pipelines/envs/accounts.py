"""n accounts side by side on one panel: their state, and the step that environments and back-tests share."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.dynamics import (
    Account,
    FillTiming,
    Transition,
    hold,
    holding_period,
    market_legs,
    resolve_fill,
)
from nvtrader_pipelines.envs.rewards.term import RECENT_SESSIONS, StepOutcome
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import total_cost

RUIN = 1e-6  # equity at which an account is over
_ARRAYS = ("t", "weights", "equity", "peak", "recent_returns")


@dataclass(frozen=True, eq=False)
class AccountStep:
    """What one decision did to n accounts."""

    transition: Transition
    path: NDArray[np.float64]  # (n, k) equity at each close
    peak: NDArray[np.float64]  # (n,) highest equity before the step
    reward_terms: dict[str, NDArray[np.float64]]  # term to (n,) contributions

    @property
    def reward(self) -> NDArray[np.float64]:
        """The sum of the terms, (n,)."""
        total = np.zeros(len(self.path))
        for contributions in self.reward_terms.values():  # one after the other: n accounts add up as each alone does
            total += contributions
        return total

    @property
    def drawdown(self) -> NDArray[np.float64]:
        """Loss from the highest close so far at each close, positive fractions (n, k)."""
        return 1.0 - self.path / np.maximum.accumulate(np.maximum(self.path, self.peak[:, None]), axis=1)


class Accounts:
    """n accounts, each at its own session; all open in cash with equity 1."""

    def __init__(self, panel: MarketPanel, spec: EnvSpec, n_accounts: int, t: int = 0) -> None:
        self.panel, self.spec = panel, spec
        self.fill: FillTiming = resolve_fill(spec.fill, panel)
        self._legs = market_legs(panel, self.fill)
        self._cost = total_cost(spec.cost_models, panel)
        self._terms = {term.kind: term.start(panel, n_accounts) for term in spec.reward_terms}
        self.t = np.full(n_accounts, t, dtype=np.int64)
        self.weights = np.zeros((n_accounts, len(panel.symbols) + 1))
        self.weights[:, -1] = 1.0
        self.equity = np.ones(n_accounts)
        self.peak = np.ones(n_accounts)
        self.recent_returns = np.zeros((n_accounts, RECENT_SESSIONS))

    @property
    def drawdown(self) -> NDArray[np.float64]:
        """Loss from each account's peak, positive fractions (n,)."""
        return 1.0 - self.equity / self.peak

    def account(self, i: int) -> Account:
        """One account as a value."""
        return Account(self.weights[i], float(self.equity[i]), float(self.peak[i]))

    def open(self, rows: list[int], t: list[int]) -> None:
        """Put the accounts back into cash with equity 1, at sessions `t`."""
        self.t[rows] = t
        self.weights, self.peak = self.weights.copy(), self.peak.copy()  # the last step holds the same arrays
        self.weights[rows] = 0.0
        self.weights[rows, -1] = 1.0
        self.equity[rows] = 1.0
        self.peak[rows] = 1.0
        self.recent_returns[rows] = 0.0
        for term in self._terms.values():
            term.reset(rows)

    def trade(self, target: NDArray[np.float64], wanted: NDArray[np.bool_], n_sessions: int) -> AccountStep:
        """Trade those `wanted` (n,) to `target` (n, N+1), hold all for `n_sessions`, and score the step.

        Raises:
            ValueError: if an account's equity is no longer a finite number.
        """
        period = holding_period(self._legs, self.t, n_sessions)
        transition = hold(self.weights, target, wanted, period, self._cost)
        decided_at, held, peak = self.t, self.weights, self.peak
        growth = transition.session_growth
        path = self.equity[:, None] * np.cumprod(growth, axis=1)
        self._require_finite(path[:, -1])
        self.peak = np.maximum(peak, path.max(axis=1))
        self.equity = path[:, -1].copy()
        self.weights = transition.weights
        self.recent_returns = np.concatenate([self.recent_returns[:, n_sessions:], growth - 1.0], axis=1)
        self.t = self.t + n_sessions
        outcome = StepOutcome(
            t=decided_at,
            weights=held,
            target=target,
            wanted=wanted,
            period=period,
            transition=transition,
            recent_returns=self.recent_returns,
            equity=self.equity,
            peak=self.peak,
        )
        terms = {kind: term(outcome) for kind, term in self._terms.items()}
        return AccountStep(transition=transition, path=path, peak=peak, reward_terms=terms)

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all that the next step depends on, each with a row per account."""
        own = {name: getattr(self, name).copy() for name in _ARRAYS}
        terms = [(kind, term.state()) for kind, term in self._terms.items()]
        return {**own, **{f"rewards.{kind}.{name}": array for kind, state in terms for name, array in state.items()}}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a `state` of as many accounts with the same spec."""
        for name in _ARRAYS:
            setattr(self, name, state[name].copy())
        for kind, term in self._terms.items():
            term.restore({name: state[f"rewards.{kind}.{name}"] for name in term.state()})

    def _require_finite(self, equity: NDArray[np.float64]) -> None:
        if not np.isfinite(equity).all():
            i = int(np.argmin(np.isfinite(equity)))
            raise ValueError(
                f"equity of account {i} is not a finite number after the decision of {self.panel.sessions[self.t[i]]}: "
                "the target weights or the panel's returns hold a NaN; check the data, or a training that diverged"
            )
