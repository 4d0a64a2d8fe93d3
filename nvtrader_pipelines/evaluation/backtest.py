"""Walk-forward back-test: every contestant's own account over the folds, on the environment's one transition."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from nvtrader_pipelines.components.columns import TableSchema
from nvtrader_pipelines.envs.accounts import RUIN, Accounts, AccountStep
from nvtrader_pipelines.envs.dynamics import Transition
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.account_tables import ACTION_LOG, EQUITY, REWARD_TERM
from nvtrader_pipelines.evaluation.splits import Block, Fold
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.policies.trajectory import Columns, step_info
from nvtrader_pipelines.portfolio.cash import CASH

Kind = Literal["policy", "ensemble", "baseline"]
Phase = Literal["test", "replay", "forward"]
EPISODE = 0  # a walk is one episode

_AT = {  # what a step's rows have in common
    "fold": pl.Int32,
    "place": pl.Int32,
    "step": pl.Int32,
    "session": pl.Date,
    "fill_session": pl.Date,
    "is_last": pl.Boolean,
}
_FILLED = TableSchema(ACTION_LOG.only("executed_weights", "trades"), TRAJECTORY.only("reward", "turnover"))
_TERM = "term:"  # before the name of a reward term, in the columns of what came of a step


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


class Recorder:
    """Gathers the arrays of each step while the accounts run, and makes the tables of them at the end."""

    def __init__(self, panel: MarketPanel, contestants: Sequence[Contestant], phase: Phase) -> None:
        self._panel, self._who, self._phase = panel, contestants, phase
        self._at: list[tuple[Any, ...]] = []  # by `_AT`, one per step
        self._decisions: list[Decision] = []  # one per step and account: each policy is asked by itself
        self._steps = Columns()  # a row per step and account
        self._filled = Columns()  # what came of it; there is nothing of a last order that waits for its fill
        self._closes = Columns()  # a row per step, account and session

    def record(self, step: WalkStep) -> None:
        """Note one step of every account."""
        ends = {"equity": step.equity[:, -1], "drawdown": step.drawdown[:, -1]}
        if step.done is not None:
            self._closes.append(_closes(step, step.done.transition, len(self._steps)))
            self._filled.append(_filled(step.done))
        self._steps.append({"target_weights": step.target, **ends})
        self._decisions.extend(map(_kept, step.decisions))
        self._at.append((step.fold, step.place, step.number, step.session, step.fill_session, step.is_last))

    def tables(self) -> BacktestRecord:
        """The rows as frames."""
        keys, filled = self._keys(), self._filled.frame() if len(self._filled) else pl.DataFrame(schema=_FILLED)
        terms = {name.removeprefix(_TERM): pl.col(name) for name in filled.columns if name.startswith(_TERM)}
        ruined = pl.col("equity") <= RUIN
        parts = [keys, _said(self._decisions), self._steps.frame(), filled.with_columns(info=step_info(terms))]
        rows = pl.concat(parts, how="horizontal_extend").with_columns(
            pl.col("info").fill_null(step_info({})),
            symbols=pl.lit([*self._panel.symbols, CASH]),
            terminated=ruined,
            truncated=pl.col("is_last") & ~ruined,
        )
        return BacktestRecord(
            trajectories=_table(rows, TRAJECTORY),
            equity_curves=_table(self._sessions(keys), EQUITY),
            action_logs=_table(rows, ACTION_LOG),
            reward_decomposition=_table(_decomposed(rows.head(len(filled)), terms), REWARD_TERM),
        )

    def _keys(self) -> pl.DataFrame:
        """Which step of which account each row is of."""
        n_steps, n_accounts, n_places = len(self._at), len(self._who), len(self._who[0].by_fold)
        account = np.tile(np.arange(n_accounts), n_steps)
        at = pl.DataFrame(self._at, schema=_AT, orient="row")[np.repeat(np.arange(n_steps), n_accounts)]
        accounts = pl.DataFrame({"policy": [who.name for who in self._who], "kind": [who.kind for who in self._who]})
        seeds = pl.Series("seed", [seed for who in self._who for seed in who.seeds], dtype=pl.Int32)
        seed = seeds[account * n_places + at["place"].to_numpy()]
        return pl.concat([at, accounts[account]], how="horizontal").with_columns(
            seed, phase=pl.lit(self._phase), episode=EPISODE
        )

    def _sessions(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Each account at each close."""
        if not len(self._closes):
            return pl.DataFrame(schema=EQUITY)
        closes = self._closes.frame()
        session = pl.Series("session", self._panel.sessions[closes["t"].to_numpy()])
        who = keys.select("policy", "kind", "fold")[closes["row"].to_numpy()]
        return pl.concat([who, closes.with_columns(session)], how="horizontal")


def _filled(done: AccountStep) -> dict[str, NDArray[np.float64]]:
    """What came of a step, a row per account."""
    transition = done.transition
    return {
        "executed_weights": transition.executed,
        "trades": transition.trades,
        "reward": done.reward,
        "turnover": transition.turnover,
        **{f"{_TERM}{term}": contributions for term, contributions in done.reward_terms.items()},
    }


def _closes(step: WalkStep, transition: Transition, first: int) -> dict[str, NDArray[Any]]:
    """Every account at each close of a step, whose first row is `first`; what was paid stands at the first close."""
    n_accounts, n_sessions = step.equity.shape
    turnover, cost = np.zeros((2, n_accounts, n_sessions))
    turnover[:, 0], cost[:, 0] = transition.turnover, transition.cost
    return {
        "row": np.repeat(first + np.arange(n_accounts), n_sessions),
        "t": np.tile(step.t + 1 + np.arange(n_sessions), n_accounts),
        "equity": step.equity.ravel(),
        "net_return": transition.session_growth.ravel() - 1.0,
        "drawdown": step.drawdown.ravel(),
        "turnover": turnover.ravel(),
        "cost": cost.ravel(),
        "cash": transition.session_cash.ravel(),
    }


def _kept(decision: Decision) -> Decision:
    """The decision with an action of its own: a policy may write its next one into the same array."""
    return decision if decision.action is None else replace(decision, action=decision.action.copy())


def _said(decisions: Sequence[Decision]) -> pl.DataFrame:
    """What learned policies saw and thought, a row per decision; nothing where a policy says nothing."""
    numbers = {
        name: pl.Series([getattr(decision, name) for decision in decisions], dtype=TRAJECTORY[name])
        for name in ("observation_hash", "value", "log_prob")
    }
    actions = [decision.action for decision in decisions]
    ends = np.cumsum([0, *(0 if action is None else len(action) for action in actions)])
    flat = np.concatenate([np.zeros(0, dtype=np.float32), *(action for action in actions if action is not None)])
    missing = pa.array([action is None for action in actions])
    lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(flat), mask=missing)
    return pl.DataFrame({**numbers, "action": lists})


def _decomposed(rows: pl.DataFrame, terms: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """Each row's terms below one another."""
    if not terms:
        return pl.DataFrame(schema=REWARD_TERM)
    named, contributions = pl.lit(list(terms)).alias("term"), pl.concat_list(*terms.values()).alias("contribution")
    return rows.select("policy", "kind", "fold", "step", "session", named, contributions).explode(
        "term", "contribution"
    )


def _table(rows: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def backtest(
    panel: MarketPanel, spec: EnvSpec, folds: Sequence[Fold | Block], contestants: Sequence[Contestant]
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
    folds: Sequence[Fold | Block],
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
    recorder = Recorder(panel, contestants, phase)
    goes_on = phase == "forward"
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
    t, panel = int(accounts.t[0]), accounts.panel
    n_sessions = min(accounts.spec.rebal_freq, at.end - t)
    target = _targets(accounts, decisions)
    done = accounts.trade(target, np.array([d.target is not None for d in decisions]), n_sessions)
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
        drawdown=done.drawdown,
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


def _require_contiguous(folds: Sequence[Fold | Block]) -> None:
    for before, after in pairwise(folds):
        if after.test_first != before.test_last + 1:
            raise ValueError(
                f"test windows must follow one another, but fold {before.index} ends at session {before.test_last} "
                f"and fold {after.index} starts at {after.test_first}"
            )
