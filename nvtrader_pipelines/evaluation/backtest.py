"""Walk-forward back-test: every contestant's own account over the folds, on the environment's one transition."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.envs.accounts import RUIN, Accounts, AccountStep
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.policies.trajectory import TRAJECTORY, step_info

Kind = Literal["policy", "ensemble", "baseline"]
Phase = Literal["test", "replay", "paper"]
EPISODE = 0  # a walk is one episode

EQUITY = {
    "policy": pl.String,
    "kind": pl.String,
    "fold": pl.Int32,
    "session": pl.Date,
    "equity": pl.Float64,
    "net_return": pl.Float64,
    "drawdown": pl.Float64,
    "turnover": pl.Float64,
    "cost": pl.Float64,
    "cash": pl.Float64,
}
ACTION_LOG = {
    "policy": pl.String,
    "kind": pl.String,
    "fold": pl.Int32,
    "step": pl.Int32,
    "session": pl.Date,
    "symbols": pl.List(pl.String),
    "target_weights": pl.List(pl.Float64),
    "executed_weights": pl.List(pl.Float64),
    "trades": pl.List(pl.Float64),
}
REWARD_TERM = {
    "policy": pl.String,
    "kind": pl.String,
    "fold": pl.Int32,
    "step": pl.Int32,
    "session": pl.Date,
    "term": pl.String,
    "contribution": pl.Float64,
}


@dataclass(frozen=True, eq=False)
class Contestant:
    """One account of the back-test and who decides for it in each fold."""

    name: str
    kind: Kind
    seeds: tuple[int | None, ...]  # of the policy of each fold; None where no single seed decides
    by_fold: tuple[Policy, ...]  # one policy per fold; a baseline may repeat itself


@dataclass(frozen=True, eq=False)
class BacktestRecord:
    """The back-test as tables, one row per account and step, session, or step and term."""

    trajectories: pl.DataFrame
    equity_curves: pl.DataFrame
    action_logs: pl.DataFrame
    reward_decomposition: pl.DataFrame


@dataclass(frozen=True, eq=False)
class WalkStep:
    """One decision of every account and what came of it."""

    place: int  # of the fold among those walked
    fold: int
    number: int
    t: int
    session: date
    fill_session: date | None  # None: the order is placed, and its session has not come
    is_last: bool
    decisions: Sequence[Decision]
    target: NDArray[np.float64]  # (n, N+1); the held weights where an account does not trade
    equity: NDArray[np.float64]  # (n, k) at each close after the decision
    drawdown: NDArray[np.float64]  # (n, k)
    done: AccountStep | None  # None: nothing came of it yet


class _Recorder:
    """Gathers rows while the accounts run."""

    def __init__(self, panel: MarketPanel, contestants: Sequence[Contestant], phase: Phase) -> None:
        self._contestants = contestants
        self._phase = phase
        self._sessions: list[date] = panel.sessions.tolist()
        self._names = [*panel.symbols, "cash"]
        self._trajectories: list[tuple[Any, ...]] = []
        self._equity: list[tuple[Any, ...]] = []
        self._actions: list[tuple[Any, ...]] = []
        self._terms: list[tuple[Any, ...]] = []

    def record(self, step: WalkStep) -> None:
        """Rows of one step of every account."""
        for i, who in enumerate(self._contestants):
            who_did, at = (who.name, who.kind), (step.number, step.session)
            key = (*who_did, step.fold)
            when = (step.fold, who.seeds[step.place], EPISODE, *at, step.fill_session)
            self._trajectories.append((*who_did, self._phase, *when, *_outcome(step, i)))
            self._actions.append((*key, *at, self._names, step.target[i].tolist(), *_executed(step, i)))
            if step.done is not None:
                self._equity.extend((*key, *row) for row in self._path(step, step.done, i))
                self._terms.extend((*key, *at, term, float(v[i])) for term, v in step.done.reward_terms.items())

    def _path(self, step: WalkStep, done: AccountStep, i: int) -> Iterator[tuple[Any, ...]]:
        transition = done.transition
        for j, growth in enumerate(transition.session_growth[i].tolist()):
            paid = (float(transition.turnover[i]), float(transition.cost[i])) if j == 0 else (0.0, 0.0)
            session = self._sessions[step.t + 1 + j]
            risk = (float(step.drawdown[i, j]), *paid, float(transition.session_cash[i, j]))
            yield (session, float(step.equity[i, j]), growth - 1.0, *risk)

    def tables(self) -> BacktestRecord:
        """The rows as frames."""
        return BacktestRecord(
            trajectories=pl.DataFrame(self._trajectories, schema=TRAJECTORY, orient="row"),
            equity_curves=pl.DataFrame(self._equity, schema=EQUITY, orient="row"),
            action_logs=pl.DataFrame(self._actions, schema=ACTION_LOG, orient="row"),
            reward_decomposition=pl.DataFrame(self._terms, schema=REWARD_TERM, orient="row"),
        )


def _outcome(step: WalkStep, i: int) -> tuple[Any, ...]:
    """What account `i` saw, did and earned, in the order of a trajectory's columns."""
    decision, done = step.decisions[i], step.done
    action = None if decision.action is None else decision.action.tolist()
    reward = None if done is None else float(done.reward[i])
    terms = {} if done is None else {term: float(values[i]) for term, values in done.reward_terms.items()}
    turnover = None if done is None else float(done.transition.turnover[i])
    equity = float(step.equity[i, -1])
    ruined = equity <= RUIN
    return (
        *(decision.observation_hash, action, reward, decision.value, decision.log_prob),
        *(equity, float(step.drawdown[i, -1]), turnover),
        *(ruined, step.is_last and not ruined, step_info(terms)),
    )


def _executed(step: WalkStep, i: int) -> tuple[list[float] | None, list[float] | None]:
    """Executed weights and trades; nothing of an order that is not filled yet."""
    if step.done is None:
        return None, None
    return step.done.transition.executed[i].tolist(), step.done.transition.trades[i].tolist()


def backtest(
    panel: MarketPanel, spec: EnvSpec, folds: Sequence[Fold], contestants: Sequence[Contestant]
) -> BacktestRecord:
    """Run every contestant's account through the folds' test windows without a break; see `walk`."""
    steps = walk(panel, spec, folds, contestants)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def walk(
    panel: MarketPanel,
    spec: EnvSpec,
    folds: Sequence[Fold],
    contestants: Sequence[Contestant],
    phase: Phase = "test",
) -> Generator[WalkStep, None, BacktestRecord]:
    """Walk every contestant's account through the folds' test windows without a break; the last value is the record.

    The first decision is made at the close before the first test session; a decision belongs to the fold of the
    session that follows it. Held weights carry over from fold to fold, so a change of policy pays its turnover.
    The environment's terminations end episodes, not this walk: it goes on to the end, as an account would. A paper
    walk has no end: nothing in it is truncated, and a decision due at the last close is an order not filled yet.

    Raises:
        ValueError: if the folds' test windows do not follow one another.
    """
    _require_contiguous(folds)
    start, end = folds[0].test_first - 1, folds[-1].test_last
    accounts = Accounts(panel, spec, len(contestants), t=start)
    recorder = _Recorder(panel, contestants, phase)
    goes_on = phase == "paper"
    for number, t in enumerate(range(start, end + goes_on, spec.rebal_freq)):
        place = next((i for i, fold in enumerate(folds) if t + 1 <= fold.test_last), len(folds) - 1)
        decisions = [who.by_fold[place].decide(panel, t, accounts.account(i)) for i, who in enumerate(contestants)]
        at = _Place(place, folds[place].index, number, end, goes_on)
        step = _step(accounts, decisions, at) if t < end else _order(accounts, decisions, at)
        recorder.record(step)
        yield step
    return recorder.tables()


@dataclass(frozen=True)
class _Place:
    """Where in the walk a decision stands."""

    place: int
    fold: int
    number: int
    end: int
    goes_on: bool


def _targets(accounts: Accounts, decisions: Sequence[Decision]) -> NDArray[np.float64]:
    return np.stack([accounts.weights[i] if d.target is None else d.target for i, d in enumerate(decisions)])


def _step(accounts: Accounts, decisions: Sequence[Decision], at: _Place) -> WalkStep:
    """Trade and hold, for `rebal_freq` sessions or to the end."""
    t, panel, peak = int(accounts.t[0]), accounts.panel, accounts.peak
    n_sessions = min(accounts.spec.rebal_freq, at.end - t)
    target = _targets(accounts, decisions)
    done = accounts.trade(target, np.array([d.target is not None for d in decisions]), n_sessions)
    peaks = np.maximum.accumulate(np.concatenate([peak[:, None], done.path], axis=1), axis=1)[:, 1:]
    return WalkStep(
        place=at.place,
        fold=at.fold,
        number=at.number,
        t=t,
        session=panel.sessions[t].item(),
        fill_session=panel.sessions[t if accounts.fill == "same_close" else t + 1].item(),
        is_last=t + n_sessions == at.end and not at.goes_on,
        decisions=decisions,
        target=target,
        equity=done.path,
        drawdown=1.0 - done.path / peaks,
        done=done,
    )


def _order(accounts: Accounts, decisions: Sequence[Decision], at: _Place) -> WalkStep:
    """What is wanted at the last close, before anything came of it."""
    t = int(accounts.t[0])
    return WalkStep(
        place=at.place,
        fold=at.fold,
        number=at.number,
        t=t,
        session=accounts.panel.sessions[t].item(),
        fill_session=None,
        is_last=False,
        decisions=decisions,
        target=_targets(accounts, decisions),
        equity=accounts.equity[:, None],
        drawdown=accounts.drawdown[:, None],
        done=None,
    )


def _require_contiguous(folds: Sequence[Fold]) -> None:
    for before, after in pairwise(folds):
        if after.test_first != before.test_last + 1:
            raise ValueError(
                f"test windows must follow one another, but fold {before.index} ends at session {before.test_last} "
                f"and fold {after.index} starts at {after.test_first}"
            )
