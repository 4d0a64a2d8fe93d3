"""n accounts side by side on one panel: their state, and the step that environments and back-tests share."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.envs.dynamics import FillTiming, Transition, hold, holding_period, market_legs, resolve_fill
from nvtrader_pipelines.envs.rewards.term import RECENT_SESSIONS, StepOutcome
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import total_cost

ALL_FINITE = -1  # no account has lost its way
RUIN = 1e-6  # equity at which an account is over
_ARRAYS = ("t", "weights", "equity", "peak", "recent_returns")


class AccountStep(NamedTuple):
    """What one decision did to n accounts."""

    transition: Transition
    path: NDArray[np.float64]  # (n, k) equity at each close
    peak: NDArray[np.float64]  # (n,) highest equity before the step
    reward_terms: dict[str, NDArray[np.float64]]  # term to (n,) contributions

    @property
    def reward(self) -> NDArray[np.float64]:
        """The sum of the terms, (n,)."""
        first, *others = self.reward_terms.values()
        return sum(others, start=first.copy())  # one after the other: n accounts add up as each alone does

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
        self.drawdown = np.zeros(n_accounts)  # loss from the peak, positive fractions
        self.recent_returns = np.zeros((n_accounts, RECENT_SESSIONS), order="F")  # a session's lie side by side

    def account(self, i: int) -> Account:
        """One account as a value."""
        return Account(self.weights[i], float(self.equity[i]), float(self.peak[i]), self.recent_returns[i])

    def open(self, rows: list[int], t: list[int]) -> None:
        """Put the accounts back into cash with equity 1, at sessions `t`."""
        self.t[rows] = t
        for name in ("weights", "peak", "drawdown"):
            setattr(self, name, getattr(self, name).copy())  # the last step holds the same arrays
        self.weights[rows] = 0.0
        self.weights[rows, -1] = 1.0
        self.equity[rows] = 1.0
        self.peak[rows] = 1.0
        self.drawdown[rows] = 0.0
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
        path, ends = np.empty_like(transition.session_growth), np.empty((3, len(held)))
        lost = _settle(transition.session_growth, self.equity, peak, self.recent_returns, path, ends)
        if lost != ALL_FINITE:
            raise self._not_finite(lost)
        self.equity, self.peak, self.drawdown = ends
        self.weights = transition.weights
        self.t = decided_at + n_sessions
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
        self.recent_returns = np.asfortranarray(self.recent_returns)
        self.drawdown = 1.0 - self.equity / self.peak
        for kind, term in self._terms.items():
            term.restore({name: state[f"rewards.{kind}.{name}"] for name in term.state()})

    def _not_finite(self, i: int) -> ValueError:
        return ValueError(
            f"equity of account {i} is not a finite number after the decision of {self.panel.sessions[self.t[i]]}: "
            "the target weights or the panel's returns hold a NaN; check the data, or a training that diverged"
        )


def opened_account(n_symbols: int) -> Account:
    """An account of equity 1, all in cash, that remembers as many sessions as `Accounts` do."""
    return replace(opening_account(n_symbols), recent_returns=np.zeros(RECENT_SESSIONS))


def settled(account: Account, weights: NDArray[np.float64], growth: float) -> Account:
    """The account at the next close: what `Accounts` do to each of theirs, for one that moves a session at a time.

    Args:
        account: at the close before.
        weights: (N+1,) at this close.
        growth: equity over that at the close before, net of cost.

    Raises:
        ValueError: if the equity would be no finite number.
    """
    equity = account.equity * growth
    if not np.isfinite(equity):
        raise ValueError(
            f"equity must stay a finite number, but {account.equity} grows by {growth}: the target weights or the "
            "market's returns hold a NaN; check the data"
        )
    recent = np.append(account.recent_returns[1:], growth - 1.0)
    return Account(weights, equity, max(account.peak, equity), recent)


@njit(cache=True)
def _settle(
    growth: NDArray[np.float64],
    equity: NDArray[np.float64],
    peak: NDArray[np.float64],
    recent: NDArray[np.float64],
    path: NDArray[np.float64],
    ends: NDArray[np.float64],
) -> int:
    """Write equity (n, k) at each close; equity, peak and drawdown (3, n) at the last; and move the recent returns on.

    Returns the first account whose equity is not a finite number, or `ALL_FINITE`.
    """
    n_sessions, n_recent = path.shape[1], recent.shape[1]
    kept = max(0, n_recent - n_sessions)
    for i in range(len(growth)):
        worth, highest = equity[i], peak[i]
        for k in range(n_sessions):
            worth *= growth[i, k]
            path[i, k] = worth
            highest = max(highest, worth)
        if not np.isfinite(worth):
            return i
        ends[0, i], ends[1, i], ends[2, i] = worth, highest, 1.0 - worth / highest
    for s in range(kept):
        for i in range(len(growth)):
            recent[i, s] = recent[i, s + n_sessions]
    for s in range(kept, n_recent):
        for i in range(len(growth)):
            recent[i, s] = growth[i, s - n_recent + n_sessions] - 1.0
    return ALL_FINITE
