"""Walk-forward back-test: every policy on its own account, by the environment's transition."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import reduce
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
from nvtrader_pipelines.evaluation.guard_telemetry import GUARDS
from nvtrader_pipelines.evaluation.splits import Block, Fold
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.policies.trajectory import Columns, step_info
from nvtrader_pipelines.portfolio.cash import CASH

Kind = Literal["policy", "ensemble", "baseline"]
Phase = Literal["test", "replay", "forward"]
EPISODE = 0  # a walk is one episode; see `chain_records`

_AT = {  # what a step's rows have in common
    "fold": pl.Int32,
    "place": pl.Int32,
    "step": pl.Int32,
    "session": pl.Date,
    "fill_session": pl.Date,
    "is_last": pl.Boolean,
}
_FILLED = TableSchema(ACTION_LOG.only("executed_weights", "trades"), TRAJECTORY.only("reward", "turnover"))
_TERM = "term:"  # prefix of reward-term columns


@dataclass(frozen=True, eq=False)
class PolicyAccount:
    """A named policy and the account it is walked on."""

    name: str
    kind: Kind
    seeds: tuple[int | None, ...]  # seed of each fold's policy; None where no single seed decides
    policies: tuple[Policy, ...]  # one per fold; a baseline repeats the same one


@dataclass(frozen=True, eq=False)
class BacktestRecord:
    """Tables of a back-test: one row per account and step, session, or step and term."""

    trajectories: pl.DataFrame
    equity_curves: pl.DataFrame
    action_logs: pl.DataFrame
    reward_decomposition: pl.DataFrame


@dataclass(frozen=True, eq=False)
class WalkStep:
    """One decision of every account, and its outcome."""

    fold_position: int  # among the folds walked
    fold: int
    number: int  # of the step
    t: int  # session of the decision, index into the panel
    session: date
    fill_session: date | None  # None: not filled yet
    is_last: bool
    decisions: Sequence[Decision]
    target: NDArray[np.float64]  # (n, N+1) target weights; held weights where an account does not trade
    equity: NDArray[np.float64]  # (n, k) at each close after the decision
    drawdown: NDArray[np.float64]  # (n, k)
    outcome: AccountStep | None  # None: not filled yet


class Recorder:
    """Collects arrays of each step and turns them into tables at the end."""

    def __init__(self, panel: MarketPanel, policy_accounts: Sequence[PolicyAccount], phase: Phase) -> None:
        self._panel, self._accounts, self._phase = panel, policy_accounts, phase
        self._at: list[tuple[Any, ...]] = []  # by `_AT`, one per step
        self._decisions: list[Decision] = []  # one per step and account
        self._steps = Columns()  # row per step and account
        self._filled = Columns()  # outcomes; none for a last order that is not filled yet
        self._closes = Columns()  # row per step, account and session

    def record(self, step: WalkStep) -> None:
        """Record one step of every account."""
        ends = {"equity": step.equity[:, -1], "drawdown": step.drawdown[:, -1]}
        if step.outcome is not None:
            self._closes.append(_close_columns(step, step.outcome.transition, len(self._steps)))
            self._filled.append(_fill_columns(step.outcome))
        self._steps.append({"target_weights": step.target, **ends})
        self._decisions.extend(map(_with_own_action, step.decisions))
        self._at.append((step.fold, step.fold_position, step.number, step.session, step.fill_session, step.is_last))

    def tables(self) -> BacktestRecord:
        """Tables of all recorded steps."""
        keys, filled = self._keys(), self._filled.frame() if len(self._filled) else pl.DataFrame(schema=_FILLED)
        terms = {name.removeprefix(_TERM): pl.col(name) for name in filled.columns if name.startswith(_TERM)}
        ruined = pl.col("equity") <= RUIN
        outputs = _policy_outputs(self._decisions)
        parts = [keys, outputs, self._steps.frame(), filled]
        guards = {"guards": pl.col("guards")} if "guards" in outputs.columns else {}
        ruin = pl.when(ruined).then(pl.lit("ruin"))
        decided = {"termination": ruin, "reasons": pl.col("reasons").replace("", None), **guards}
        is_filled = pl.int_range(pl.len()) < len(filled)
        rows = pl.concat(parts, how="horizontal_extend").with_columns(
            info=pl.when(is_filled).then(step_info(terms, **decided)).otherwise(step_info({}, **decided)),
            symbols=pl.lit([*self._panel.symbols, CASH]),
            terminated=ruined,
            truncated=pl.col("is_last") & ~ruined,
        )
        return BacktestRecord(
            trajectories=_table(rows, TRAJECTORY),
            equity_curves=_table(self._sessions(keys), EQUITY),
            action_logs=_table(rows, ACTION_LOG),
            reward_decomposition=_table(_reward_term_rows(rows.head(len(filled)), terms), REWARD_TERM),
        )

    def _keys(self) -> pl.DataFrame:
        n_steps, n_accounts, n_folds = len(self._at), len(self._accounts), len(self._accounts[0].policies)
        account = np.tile(np.arange(n_accounts), n_steps)
        at = pl.DataFrame(self._at, schema=_AT, orient="row")[np.repeat(np.arange(n_steps), n_accounts)]
        accounts = pl.DataFrame(
            {
                "policy": [account.name for account in self._accounts],
                "kind": [account.kind for account in self._accounts],
            }
        )
        seeds = pl.Series("seed", [seed for account in self._accounts for seed in account.seeds], dtype=pl.Int32)
        seed = seeds[account * n_folds + at["place"].to_numpy()]
        return pl.concat([at, accounts[account]], how="horizontal").with_columns(
            seed, phase=pl.lit(self._phase), episode=EPISODE
        )

    def _sessions(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Row per account and close."""
        if not len(self._closes):
            return pl.DataFrame(schema=EQUITY)
        closes = self._closes.frame()
        session = pl.Series("session", self._panel.sessions[closes["t"].to_numpy()])
        owner = keys.select("policy", "kind", "fold")[closes["row"].to_numpy()]
        return pl.concat([owner, closes.with_columns(session)], how="horizontal")


def _fill_columns(outcome: AccountStep) -> dict[str, NDArray[np.float64]]:
    """Columns of a filled step, a row per account."""
    transition = outcome.transition
    return {
        "executed_weights": transition.executed,
        "trades": transition.trades,
        "reward": outcome.reward,
        "turnover": transition.turnover,
        **{f"{_TERM}{term}": contributions for term, contributions in outcome.reward_terms.items()},
    }


def _close_columns(step: WalkStep, transition: Transition, first: int) -> dict[str, NDArray[Any]]:
    """Columns of every account at each close of a step, with first row `first`; an order's cost at the first close."""
    n_accounts, n_sessions = step.equity.shape
    turnover, cost = np.zeros((2, n_accounts, n_sessions))
    exposures = transition.exposures
    turnover[:, 0], cost[:, 0] = transition.turnover, transition.cost
    turnover, cost = turnover + exposures.cap_turnover, cost + exposures.cap_cost
    return {
        "row": np.repeat(first + np.arange(n_accounts), n_sessions),
        "t": np.tile(step.t + 1 + np.arange(n_sessions), n_accounts),
        "equity": step.equity.ravel(),
        "net_return": transition.session_growth.ravel() - 1.0,
        "drawdown": step.drawdown.ravel(),
        "turnover": turnover.ravel(),
        "cost": cost.ravel(),
        "cash": transition.session_cash.ravel(),
        "gross": exposures.gross.ravel(),
        "gross_before_cap": exposures.before_cap.ravel(),
        "financing": exposures.financing.ravel(),
    }


def _with_own_action(decision: Decision) -> Decision:
    """Copy the action, since a policy may reuse its array."""
    return decision if decision.action is None else replace(decision, action=decision.action.copy())


def _policy_outputs(decisions: Sequence[Decision]) -> pl.DataFrame:
    """Observation hash, value, log probability, action, reasons and guards per decision; null where it has none."""
    numbers = {
        name: pl.Series([getattr(decision, name) for decision in decisions], dtype=TRAJECTORY[name])
        for name in ("observation_hash", "value", "log_prob")
    }
    actions = [decision.action for decision in decisions]
    ends = np.cumsum([0, *(0 if action is None else len(action) for action in actions)])
    flat = np.concatenate([np.zeros(0, dtype=np.float32), *(action for action in actions if action is not None)])
    missing = pa.array([action is None for action in actions])
    lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(flat), mask=missing)
    fired = [None if decision.pipeline is None else decision.pipeline.guards for decision in decisions]
    guards = (
        {"guards": pl.Series([guards and guards._asdict() for guards in fired], dtype=GUARDS)} if any(fired) else {}
    )
    return pl.DataFrame({**numbers, "action": lists, "reasons": [decision.reasons for decision in decisions], **guards})


def _reward_term_rows(rows: pl.DataFrame, terms: Mapping[str, pl.Expr]) -> pl.DataFrame:
    if not terms:
        return pl.DataFrame(schema=REWARD_TERM)
    named, contributions = pl.lit(list(terms)).alias("term"), pl.concat_list(*terms.values()).alias("contribution")
    return rows.select("policy", "kind", "fold", "step", "session", named, contributions).explode(
        "term", "contribution"
    )


def _table(rows: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def backtest(
    panel: MarketPanel,
    spec: EnvSpec,
    folds: Sequence[Fold | Block],
    policy_accounts: Sequence[PolicyAccount],
    first_hold: int | None = None,
) -> BacktestRecord:
    """Walk every account through the folds' test windows and return the record; see `walk`."""
    return drain(walk(panel, spec, folds, policy_accounts, first_hold=first_hold))


def walk(
    panel: MarketPanel,
    spec: EnvSpec,
    folds: Sequence[Fold | Block],
    policy_accounts: Sequence[PolicyAccount],
    phase: Phase = "test",
    first_hold: int | None = None,
) -> Generator[WalkStep, None, BacktestRecord]:
    """Walk every account through the folds' test windows without a break, yield each step and return the record.

    The first decision is made at the close before the first test session; a decision belongs to the fold of the
    session after it. Held weights carry over between folds, so a change of policy pays its turnover. The environment's
    terminations end episodes, not the walk. An account that lost all is in cash to its end. A paper walk has no end:
    nothing in it is truncated, and a decision due at the last close is an order not filled yet.

    Args:
        panel: market.
        spec: environment of every account; decisions are `spec.rebal_freq` sessions apart.
        folds: windows, in time order.
        policy_accounts: accounts with a policy per fold.
        phase: of the trajectories.
        first_hold: sessions from the first decision to the second; None for `spec.rebal_freq`.

    Raises:
        ValueError: if the folds' test windows are not contiguous.
    """
    _require_contiguous(folds)
    start, end = folds[0].test_first - 1, folds[-1].test_last
    accounts = Accounts(panel, spec, len(policy_accounts), t=start, tracks_positions=True)
    recorder = Recorder(panel, policy_accounts, phase)
    is_open_ended = phase == "forward"
    stop = end + is_open_ended
    decided = [t for t in (start, *range(start + (first_hold or spec.rebal_freq), stop, spec.rebal_freq)) if t < stop]
    for number, (t, next_t) in enumerate(pairwise([*decided, end])):
        position = next((i for i, fold in enumerate(folds) if t + 1 <= fold.test_last), len(folds) - 1)
        decisions = [
            account.policies[position].decide(panel, t, accounts.account(i))
            for i, account in enumerate(policy_accounts)
        ]
        targets = [decision.target if accounts.equity[i] > 0.0 else None for i, decision in enumerate(decisions)]
        target = np.stack([accounts.weights[i] if target is None else target for i, target in enumerate(targets)])
        n_sessions = next_t - t  # 0: an order at the last close
        is_trading = np.array([target is not None for target in targets])
        outcome = accounts.trade(target, is_trading, n_sessions) if n_sessions else None
        filled_at = t if accounts.fill == "same_close" else t + 1
        step = WalkStep(
            fold_position=position,
            fold=folds[position].index,
            number=number,
            t=t,
            session=panel.sessions[t].item(),
            fill_session=panel.sessions[filled_at].item() if outcome else None,
            is_last=t + n_sessions == end and not is_open_ended,
            decisions=decisions,
            target=target,
            equity=outcome.path if outcome else accounts.equity[:, None],
            drawdown=outcome.drawdown if outcome else accounts.drawdown[:, None],
            outcome=outcome,
        )
        recorder.record(step)
        yield step
    return recorder.tables()


def chain_records(records: Sequence[BacktestRecord]) -> BacktestRecord:
    """Join walks of the same accounts, each opened anew in cash with the equity that the one before ended with.

    Steps are numbered through, and each walk is an episode. A walk ends marked at its last close: the cost of selling
    its holdings is not charged.
    """
    return reduce(_continue, records)


def _continue(before: BacktestRecord, after: BacktestRecord) -> BacktestRecord:
    """Append a walk whose accounts opened anew."""
    last = before.trajectories.select("episode", "step").max().row(0, named=True)
    grown = before.equity_curves.group_by("policy", maintain_order=True).agg(grown=pl.col("equity").last())
    follows = {
        "step": pl.col("step") + (last["step"] + 1),
        "episode": pl.col("episode") + (last["episode"] + 1),
        "equity": pl.col("equity") * pl.col("grown"),
    }
    tables = {}
    for table in fields(before):
        earlier, later = getattr(before, table.name), getattr(after, table.name)
        present = [changed.alias(name) for name, changed in follows.items() if name in later.columns]
        later = later.join(grown, on="policy", how="left", maintain_order="left").with_columns(present)
        tables[table.name] = pl.concat([earlier, later.select(earlier.columns).cast(earlier.schema)])
    return BacktestRecord(**tables)


def _require_contiguous(folds: Sequence[Fold | Block]) -> None:
    for before, after in pairwise(folds):
        if after.test_first != before.test_last + 1:
            raise ValueError(f"test windows must be contiguous: fold {after.index} starts at {after.test_first}")
