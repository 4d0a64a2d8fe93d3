"""State and steps of n accounts on one panel, shared by environments and back-tests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.envs.dynamics import Legs, Transition, hold, holding_period, market_legs
from nvtrader_pipelines.envs.fill_timing import FillTiming, resolve_fill
from nvtrader_pipelines.envs.outcomes import outcomes_of
from nvtrader_pipelines.envs.rewards import RewardTerm
from nvtrader_pipelines.envs.rewards.term import RECENT_SESSIONS, RewardFunction, Stateless, StepOutcome
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.look_ahead import hide_outside
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.costs import total_cost
from nvtrader_pipelines.portfolio.losses import NEVER, IntArray, count_since_loss

ALL_FINITE = -1  # every equity is finite
RUIN = 1e-6  # equity at or below which an account is ruined
_ARRAYS = ("t", "weights", "equity", "peak", "recent_returns")


class AccountStep(NamedTuple):
    """Result of one decision of n accounts."""

    transition: Transition
    path: NDArray[np.float64]  # (n, k) equity at each close
    peak: NDArray[np.float64]  # (n,) highest equity before the step
    reward_terms: dict[str, NDArray[np.float64]]  # contributions (n,) by term

    @property
    def reward(self) -> NDArray[np.float64]:
        """Sum of the terms, (n,)."""
        first, *others = self.reward_terms.values()
        return sum(others, start=first.copy())  # in order, so that n accounts round as each alone

    @property
    def drawdown(self) -> NDArray[np.float64]:
        """Loss from the running maximum at each close, positive fractions (n, k)."""
        return 1.0 - self.path / np.maximum.accumulate(np.maximum(self.path, self.peak[:, None]), axis=1)


class Accounts:
    """n accounts, each at its own session, opened in cash with equity 1.

    With `tracks_positions`, steps have exposures, and decisions since each name's last loss are counted. Reward terms
    that look ahead see the `training` windows alone, and count 0 without any: in back-tests and on paper.
    """

    def __init__(
        self,
        panel: MarketPanel,
        spec: EnvSpec,
        n_accounts: int,
        t: int = 0,
        *,
        tracks_positions: bool = False,
        training: Sequence[Window] = (),
    ) -> None:
        self.panel, self.spec = panel, spec
        self.fill: FillTiming = resolve_fill(spec.fill, panel)
        self._legs = environment_legs(panel, spec, tracks_exposure=tracks_positions)
        self._cost = total_cost(spec.cost_models, panel)
        looks_ahead = any(getattr(term, "looks_ahead", False) for term in spec.reward_terms)
        seen = _training_market(panel, training, self.fill) if training and looks_ahead else None
        self._terms = {term.kind: _start_term(term, panel, n_accounts, seen) for term in spec.reward_terms}
        self.t = np.full(n_accounts, t, dtype=np.int64)
        self.weights = np.zeros((n_accounts, len(panel.symbols) + 1))
        self.weights[:, -1] = 1.0
        self.equity = np.ones(n_accounts)
        self.peak = np.ones(n_accounts)
        self.drawdown = np.zeros(n_accounts)  # loss from the peak, positive fractions
        self.recent_returns = np.zeros((n_accounts, RECENT_SESSIONS), order="F")  # contiguous by session
        self._tracks_positions = tracks_positions
        self._arrays = (*_ARRAYS, "since_loss") if tracks_positions else _ARRAYS
        self.since_loss: IntArray = np.full((n_accounts, len(panel.symbols)), NEVER)

    def account(self, i: int) -> Account:
        """Return the state of one account; its arrays are read-only."""
        weights, recent_returns = self.weights[i], self.recent_returns[i]
        since_loss = self.since_loss[i]
        weights.flags.writeable = recent_returns.flags.writeable = since_loss.flags.writeable = False
        return Account(weights, float(self.equity[i]), float(self.peak[i]), recent_returns, since_loss)

    def open(self, rows: list[int], t: list[int]) -> None:
        """Reset the accounts to cash with equity 1, at sessions `t`."""
        self.t[rows] = t
        for name in ("weights", "peak", "drawdown"):
            setattr(self, name, getattr(self, name).copy())  # the last step refers to the same arrays
        self.weights[rows] = 0.0
        self.weights[rows, -1] = 1.0
        self.equity[rows] = 1.0
        self.peak[rows] = 1.0
        self.drawdown[rows] = 0.0
        self.recent_returns[rows] = 0.0
        self.since_loss[rows] = NEVER
        for term in self._terms.values():
            term.reset(rows)

    def trade(
        self,
        target: NDArray[np.float64],
        is_trading: NDArray[np.bool_],
        n_sessions: int,
        turnover_penalties: NDArray[np.float64] | None = None,
    ) -> AccountStep:
        """Trade accounts with `is_trading` (n,) to `target` (n, N+1); hold all for `n_sessions`.

        Turnover penalties (n,) that are not NaN replace the weight of the reward's term.

        Raises:
            ValueError: if an account's equity becomes NaN or infinite.
        """
        period = holding_period(self._legs, self.t, n_sessions)
        transition = hold(self.weights, target, is_trading, period, self._cost)
        decided_at, held, peak = self.t, self.weights, self.peak
        path, ends = np.empty_like(transition.session_growth), np.empty((3, len(held)))
        lost = _settle_rows(transition.session_growth, self.equity, peak, self.recent_returns, path, ends)
        if lost != ALL_FINITE:
            raise self._non_finite_error(lost)
        if self._tracks_positions:
            self.since_loss = count_since_loss(self.since_loss, outcomes_of(held, transition, period))
        self.equity, self.peak, self.drawdown = ends
        self.weights = transition.weights
        if not self.equity.all():
            self.weights[self.equity == 0.0] = opening_account(len(self.panel.symbols)).weights  # also by a cost
        self.t = decided_at + n_sessions
        outcome = StepOutcome(
            t=decided_at,
            weights=held,
            target=target,
            is_trading=is_trading,
            period=period,
            transition=transition,
            recent_returns=self.recent_returns,
            equity=self.equity,
            peak=self.peak,
            turnover_penalties=turnover_penalties,
        )
        terms = {kind: term(outcome) for kind, term in self._terms.items()}
        return AccountStep(transition=transition, path=path, peak=peak, reward_terms=terms)

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that the next step depends on, with a row per account."""
        own = {name: getattr(self, name).copy() for name in self._arrays}
        terms = [(kind, term.state()) for kind, term in self._terms.items()]
        return {**own, **{f"rewards.{kind}.{name}": array for kind, state in terms for name, array in state.items()}}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state` of the same number of accounts and the same spec."""
        for name in self._arrays:
            setattr(self, name, state[name].copy())
        self.recent_returns = np.asfortranarray(self.recent_returns)
        self.drawdown = 1.0 - self.equity / self.peak
        for kind, term in self._terms.items():
            term.restore({name: state[f"rewards.{kind}.{name}"] for name in term.state()})

    def _non_finite_error(self, i: int) -> ValueError:
        return ValueError(
            f"equity of account {i} is not finite after the decision of {self.panel.sessions[self.t[i]]}: the target "
            "weights or the panel's returns are not; check the data and whether the training diverged"
        )


def environment_legs(panel: MarketPanel, spec: EnvSpec, *, tracks_exposure: bool = False) -> Legs:
    """Returns, charges and cap on gross of the environment's accounts; exposures are tracked if it is levered."""
    fill = resolve_fill(spec.fill, panel)
    is_tracked = tracks_exposure or spec.is_levered
    return market_legs(panel, fill, spec.financing, close_cap=spec.close_cap, tracks_exposure=is_tracked)


def _start_term(term: RewardTerm, panel: MarketPanel, n_accounts: int, seen: MarketPanel | None) -> RewardFunction:
    """Start a reward term; one that looks ahead sees the training's market alone, and counts 0 without one."""
    if not getattr(term, "looks_ahead", False):
        return term.start(panel, n_accounts)
    if seen is None:
        return Stateless(lambda outcome: np.zeros(len(outcome.t)))
    return term.start(seen, n_accounts)


def _training_market(panel: MarketPanel, training: Sequence[Window], fill: FillTiming) -> MarketPanel:
    """Market of the training windows alone, whose return after a decision is the first that its fill can earn."""
    seen = hide_outside(panel, training)
    if fill != "next_close":
        return seen
    later = np.append(seen.close_returns[1:], np.zeros_like(seen.close_returns[:1]), axis=0)
    return replace(seen, close_returns=later)


def opening_account_with_history(n_symbols: int) -> Account:
    """Account of equity 1 in cash, with as many recent returns as in `Accounts`."""
    return replace(opening_account(n_symbols), recent_returns=np.zeros(RECENT_SESSIONS))


def settle(account: Account, weights: NDArray[np.float64], growth: float) -> Account:
    """Move an account to the next close, given its weights (N+1,) there and its net growth.

    Raises:
        ValueError: if the equity becomes NaN or infinite.
    """
    equity = account.equity * growth
    if not np.isfinite(equity):
        raise ValueError(f"equity must be finite, but {account.equity} times {growth} is not; check the market")
    if equity == 0.0:
        weights = opening_account(len(weights) - 1).weights
    recent = np.append(account.recent_returns[1:], growth - 1.0)
    return Account(weights, equity, max(account.peak, equity), recent)


@njit(cache=True)
def _settle_rows(
    growth: NDArray[np.float64],
    equity: NDArray[np.float64],
    peak: NDArray[np.float64],
    recent: NDArray[np.float64],
    path: NDArray[np.float64],
    ends: NDArray[np.float64],
) -> int:
    """Write equity (n, k), the last equity, peak and drawdown (3, n), and recent returns.

    Returns the first account whose equity is not finite, or `ALL_FINITE`.
    """
    n_sessions, n_recent = path.shape[1], recent.shape[1]
    n_shifted = max(0, n_recent - n_sessions)
    for i in range(len(growth)):
        worth, highest = equity[i], peak[i]
        for k in range(n_sessions):
            worth *= growth[i, k]
            path[i, k] = worth
            highest = max(highest, worth)
        if not np.isfinite(worth):
            return i
        ends[0, i], ends[1, i], ends[2, i] = worth, highest, 1.0 - worth / highest
    for s in range(n_shifted):
        for i in range(len(growth)):
            recent[i, s] = recent[i, s + n_sessions]
    for s in range(n_shifted, n_recent):
        for i in range(len(growth)):
            recent[i, s] = growth[i, s - n_recent + n_sessions] - 1.0
    return ALL_FINITE
