"""Walk-forward back-test: every contestant's own account over the folds, on the environment's one transition."""

from collections.abc import Iterator, Sequence
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

Kind = Literal["policy", "ensemble", "baseline"]

TRAJECTORY = {
    "policy": pl.String,
    "kind": pl.String,
    "fold": pl.Int32,
    "seed": pl.Int32,
    "step": pl.Int32,
    "session": pl.Date,
    "fill_session": pl.Date,
    "observation_hash": pl.Int64,
    "action": pl.List(pl.Float32),
    "reward": pl.Float64,
    "value": pl.Float32,
    "log_prob": pl.Float32,
    "terminated": pl.Boolean,
    "truncated": pl.Boolean,
}
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
    seed: int | None
    by_fold: tuple[Policy, ...]  # one policy per fold; a baseline may repeat itself


@dataclass(frozen=True, eq=False)
class BacktestRecord:
    """The back-test as tables, one row per account and step, session, or step and term."""

    trajectories: pl.DataFrame
    equity_curves: pl.DataFrame
    action_logs: pl.DataFrame
    reward_decomposition: pl.DataFrame


@dataclass(frozen=True, eq=False)
class _Step:
    """One decision of every account and what came of it."""

    fold: int
    number: int
    t: int
    session: date
    fill_session: date
    is_last: bool
    decisions: Sequence[Decision]
    target: NDArray[np.float64]  # (n, N+1); the held weights where an account does not trade
    drawdown: NDArray[np.float64]  # (n, k)
    done: AccountStep


class _Recorder:
    """Gathers rows while the accounts run."""

    def __init__(self, panel: MarketPanel, contestants: Sequence[Contestant]) -> None:
        self._contestants = contestants
        self._sessions: list[date] = panel.sessions.tolist()
        self._names = [*panel.symbols, "cash"]
        self._trajectories: list[tuple[Any, ...]] = []
        self._equity: list[tuple[Any, ...]] = []
        self._actions: list[tuple[Any, ...]] = []
        self._terms: list[tuple[Any, ...]] = []

    def record(self, step: _Step) -> None:
        """Rows of one step of every account."""
        for i, who in enumerate(self._contestants):
            key = (who.name, who.kind, step.fold)
            at = (step.number, step.session)
            transition = step.done.transition
            self._trajectories.append((*key, who.seed, *at, *self._outcome(step, i)))
            self._equity.extend((*key, *row) for row in self._path(step, i))
            weights = (step.target[i], transition.executed[i], transition.trades[i])
            self._actions.append((*key, *at, self._names, *(row.tolist() for row in weights)))
            self._terms.extend((*key, *at, term, float(v[i])) for term, v in step.done.reward_terms.items())

    def _outcome(self, step: _Step, i: int) -> tuple[Any, ...]:
        decision = step.decisions[i]
        ruined = bool(step.done.path[i, -1] <= RUIN)
        action = None if decision.action is None else decision.action.tolist()
        reward = float(step.done.reward[i])
        seen = (step.fill_session, decision.observation_hash, action, reward, decision.value, decision.log_prob)
        return (*seen, ruined, step.is_last and not ruined)

    def _path(self, step: _Step, i: int) -> Iterator[tuple[Any, ...]]:
        transition = step.done.transition
        for j, growth in enumerate(transition.session_growth[i].tolist()):
            paid = (float(transition.turnover[i]), float(transition.cost[i])) if j == 0 else (0.0, 0.0)
            session = self._sessions[step.t + 1 + j]
            risk = (float(step.drawdown[i, j]), *paid, float(transition.session_cash[i, j]))
            yield (session, float(step.done.path[i, j]), growth - 1.0, *risk)

    def tables(self) -> BacktestRecord:
        """The rows as frames."""
        return BacktestRecord(
            trajectories=pl.DataFrame(self._trajectories, schema=TRAJECTORY, orient="row"),
            equity_curves=pl.DataFrame(self._equity, schema=EQUITY, orient="row"),
            action_logs=pl.DataFrame(self._actions, schema=ACTION_LOG, orient="row"),
            reward_decomposition=pl.DataFrame(self._terms, schema=REWARD_TERM, orient="row"),
        )


def backtest(
    panel: MarketPanel, spec: EnvSpec, folds: Sequence[Fold], contestants: Sequence[Contestant]
) -> BacktestRecord:
    """Run every contestant's account through the folds' test windows without a break.

    The first decision is made at the close before the first test session; a decision belongs to the fold of the
    session that follows it. Held weights carry over from fold to fold, so a change of policy pays its turnover.

    Raises:
        ValueError: if the folds' test windows do not follow one another.
    """
    _require_contiguous(folds)
    start, end = folds[0].test_first - 1, folds[-1].test_last
    accounts = Accounts(panel, spec, len(contestants), t=start)
    recorder = _Recorder(panel, contestants)
    for number, t in enumerate(range(start, end, spec.rebal_freq)):
        fold = next(i for i, fold in enumerate(folds) if t + 1 <= fold.test_last)
        decisions = [who.by_fold[fold].decide(panel, t, accounts.account(i)) for i, who in enumerate(contestants)]
        recorder.record(_step(accounts, decisions, folds[fold].index, number, end))
    return recorder.tables()


def _step(accounts: Accounts, decisions: Sequence[Decision], fold: int, number: int, end: int) -> _Step:
    """Trade and hold, for `rebal_freq` sessions or to the end."""
    t, panel, peak = int(accounts.t[0]), accounts.panel, accounts.peak
    n_sessions = min(accounts.spec.rebal_freq, end - t)
    target = np.stack([accounts.weights[i] if d.target is None else d.target for i, d in enumerate(decisions)])
    done = accounts.trade(target, np.array([d.target is not None for d in decisions]), n_sessions)
    peaks = np.maximum.accumulate(np.concatenate([peak[:, None], done.path], axis=1), axis=1)[:, 1:]
    return _Step(
        fold=fold,
        number=number,
        t=t,
        session=panel.sessions[t].item(),
        fill_session=panel.sessions[t if accounts.fill == "same_close" else t + 1].item(),
        is_last=t + n_sessions == end,
        decisions=decisions,
        target=target,
        drawdown=1.0 - done.path / peaks,
        done=done,
    )


def _require_contiguous(folds: Sequence[Fold]) -> None:
    for before, after in pairwise(folds):
        if after.test_first != before.test_last + 1:
            raise ValueError(
                f"test windows must follow one another, but fold {before.index} ends at session {before.test_last} "
                f"and fold {after.index} starts at {after.test_first}"
            )
