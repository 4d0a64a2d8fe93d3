"""Whether to retrain an experiment: its market grew, the account drifted, or the regime changed."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import takewhile

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.desk.traded_policy import read_traded
from nvtrader_pipelines.evaluation.intervals import growth_interval
from nvtrader_pipelines.evaluation.rolling import ROLLING_SESSIONS
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.research.hand_over import experiment_file, is_winner, later_winner
from nvtrader_pipelines.runs.run_tables import WALK_FORWARD
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, MARKET_PANEL, REGIMES

MIN_NEW_SESSIONS = 21  # after the tests
MIN_TRADED_SESSIONS = 21  # a shorter account is noise
MIN_WINNER_SESSIONS = 252  # after the tests of its first run: its next ones test them alone
MIN_SESSIONS_APART = 5  # of two retrainings of an experiment
TURN = 0.2  # fall from the high of a bull market, or rise from the low of a bear market, that ends it


def bear_market_sessions(levels: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether an index (T,) is in a bear market at each session, from levels up to that session alone.

    A bear market begins at the first close 20 % below the high of the bull market, and ends at the first close 20 %
    above its own low; the history begins as a bull market. Between two changes the index moves by 20 %, so the state
    does not flicker as the sign of a trailing return does.

    Source: the filter of Lunde & Timmermann (2004), "Duration Dependence in Stock Prices", with 20 % both ways.
    """
    is_bear, extreme, states = False, levels[0], []
    for level in levels.tolist():
        extreme = min(extreme, level) if is_bear else max(extreme, level)
        if level >= (1.0 + TURN) * extreme if is_bear else level <= (1.0 - TURN) * extreme:
            is_bear, extreme = not is_bear, level
        states.append(is_bear)
    return np.array(states)


@dataclass(frozen=True)
class RetrainingCheck:
    """Check whether an experiment is to be retrained, as of the last session of its market."""

    partition_key: str
    as_of: date
    calendar: TradingCalendar  # of the market
    is_due: bool
    sentence: str  # figure and bound
    successor: ExperimentSpec | None = None  # that is trained in its place where it is due

    @property
    def recent_sessions(self) -> list[date]:
        """Sessions as of which an earlier retraining is too recent for another."""
        days = self.calendar.sessions(self.as_of - timedelta(days=14), self.as_of)
        return days[-MIN_SESSIONS_APART:].tolist()


def check_market_growth(store: Store, partition_keys: Collection[str]) -> list[RetrainingCheck]:
    """Check for each experiment with a completed run whether its market has 21 more sessions to test.

    The winner of a search needs 252 more than its first run tested; its successor is tested on these alone.
    """
    tested = _tested_experiments(store, partition_keys)
    return [_check_growth(store, *row) for row in tested.iter_rows()]


def check_account_drift(store: Store, account: str) -> RetrainingCheck | None:
    """Check whether an account grew less than the 95 % interval of its policy's back-test over as many sessions.

    Counted are the last sessions in a row that the active policy traded, without replays: at least 21, at most 126. One
    account in forty that is as good as its back-test is below the interval at a session. None without an active policy
    or its market.

    Raises:
        StorageError: if the audit, the account's book or the policy's experiment is damaged.
    """
    active = read_traded(store, account)
    tested = _tested_experiments(store, [active.partition_key] if active else [])
    if active is None or tested.is_empty():
        return None
    key, _, _, as_of = tested.row(0)
    calendar = store.calendar_of(key)
    equity = _traded_equity(store, active, account)
    n_sessions = len(equity) - 1
    traded = (
        f"the account {account} was traded by {active.policy} of run {active.run_id} for {max(n_sessions, 0)} sessions"
    )
    if n_sessions < MIN_TRADED_SESSIONS:
        return RetrainingCheck(
            key, as_of, calendar, is_due=False, sentence=f"{traded}, of at least {MIN_TRADED_SESSIONS}"
        )
    tested_returns = _tested_returns(store, active)
    if not len(tested_returns):
        sentence = f"{traded}, but its back-test has no stored curves"
        return RetrainingCheck(key, as_of, calendar, is_due=False, sentence=sentence)
    growth = float(np.log(equity[-1] / equity[0]))
    low, _ = growth_interval(tested_returns, n_sessions)
    bound = f"the 95 % interval of its back-test over as many sessions begins at {np.expm1(low):+.1%}"
    sentence = f"{traded} and returned {np.expm1(growth):+.1%}; {bound}"
    return _refuse_holdout(store, RetrainingCheck(key, as_of, calendar, growth < low, sentence))


def check_regime_change(store: Store, account: str) -> RetrainingCheck | None:
    """Check whether the market of an account's policy changed its regime since the tests of its experiment.

    The regimes are bull and bear market of the source's equal-weight index, as known at each session; the labels of
    `gold.regimes` look ahead and are not used. The tests are those of the experiment's newest run, so that one that was
    retrained in the present regime is not retrained again. None without an active policy, its market or an index that
    reaches back to the tests.

    Raises:
        StorageError: if the audit or the policy's experiment is damaged.
    """
    active = read_traded(store, account)
    tested = _tested_experiments(store, [active.partition_key] if active else [])
    if tested.is_empty():
        return None
    key, source, tested_to, as_of = tested.row(0)
    index = store.tables.read(REGIMES, {"source": [source]}, ["session", "index_level"]).sort("session")
    if not (index["session"] <= tested_to).any():
        return None
    is_bear = bear_market_sessions(index["index_level"].to_numpy())
    before, now = (
        "bear" if is_bear[index["session"].search_sorted(day, "right") - 1] else "bull" for day in (tested_to, as_of)
    )
    sentence = f"{key} is tested to {tested_to} in a {before} market; on {as_of}, {source} is in a {now} market"
    return _refuse_holdout(store, RetrainingCheck(key, as_of, store.calendar_of(key), before != now, sentence))


def _tested_experiments(store: Store, partition_keys: Collection[str]) -> pl.DataFrame:
    """Experiments with a completed run: key, market source, last tested session, last session of the market."""
    done = store.ledger.runs().filter(
        pl.col("status") == "done", pl.col("kind") == WALK_FORWARD, pl.col("partition_key").is_in(partition_keys)
    )
    tested = done.group_by("partition_key", "source").agg(pl.col("window_last").max())
    ends = store.tables.read_whole(MARKET_PANEL, ["source", "last_session"])
    return tested.join(ends, on="source").sort("partition_key")


def _check_growth(store: Store, partition_key: str, source: str, tested_to: date, as_of: date) -> RetrainingCheck:
    calendar = store.calendar_of(partition_key)
    n_new = max(0, len(calendar.sessions(tested_to, as_of)) - 1)
    spec = store.ledger.read(partition_key)
    if is_winner(spec) and (successor := _next_winner(store, spec, as_of)):
        figures = f"{source} has {MIN_WINNER_SESSIONS} sessions or more since the first run of {spec.name}"
        sentence = f"{figures}, which {successor.name} tests from {successor.report_from}"
        return RetrainingCheck(partition_key, as_of, calendar, is_due=True, sentence=sentence, successor=successor)
    figures = f"{partition_key} is tested to {tested_to}; to {as_of}, {source} has {n_new} more sessions"
    sentence = f"{figures} (required: {MIN_NEW_SESSIONS})"
    check = _refuse_holdout(store, RetrainingCheck(partition_key, as_of, calendar, n_new >= MIN_NEW_SESSIONS, sentence))
    if not (check.is_due and _has_current_panel(store, partition_key)):
        return check
    return replace(check, is_due=False, sentence=f"{figures}, but a run of it has all sessions of its names")


def _next_winner(store: Store, spec: ExperimentSpec, as_of: date) -> ExperimentSpec | None:
    """Retrained winner whose test begins after those of the winner's first run; None before a year, or if it exists."""
    runs = store.ledger.runs().filter(partition_key=spec.partition_key, status="done", kind=WALK_FORWARD)
    tested_to = min(runs["window_last"].to_list())
    new_sessions = store.calendar_of(spec.partition_key).sessions(tested_to, as_of)[1:].tolist()
    if len(new_sessions) < MIN_WINNER_SESSIONS:
        return None
    successor = later_winner(spec, new_sessions[0])
    exists = experiment_file(store, successor).exists() or successor.name in store.ledger.versions()["name"]
    return None if exists else successor


def _has_current_panel(store: Store, partition_key: str) -> bool:
    """Whether a completed run of the experiment has its current panel, such as one of names that have ended."""
    runs = store.ledger.runs().filter(partition_key=partition_key, status="done", kind=WALK_FORWARD)
    with suppress(StorageError, ValueError):  # the next run names the problem
        return panel_digest(store.panels.read(store.ledger.read(partition_key).market)) in runs["panel_digest"]
    return False


def _refuse_holdout(store: Store, check: RetrainingCheck) -> RetrainingCheck:
    """Return the check, not due for a holdout, whose retraining repeats its policies."""
    splitter = store.ledger.read(check.partition_key).splitter if check.is_due else None
    end = getattr(splitter, "fixed_training_end", None)
    if end is None:
        return check
    fixed = f"the training of {check.partition_key} ends before {end} in every run"
    remedy = "a new search or experiment trains on later sessions"
    return replace(check, is_due=False, sentence=f"{check.sentence}, but {fixed}; {remedy}")


def _traded_equity(store: Store, active: ActivePolicy, account: str) -> list[float]:
    """Equity of the account at the last closes in a row with the active policy in force, without replays."""
    in_force = active.run_id, active.policy, False
    states = store.book(account).newest_states(ROLLING_SESSIONS + 1)
    traded = takewhile(lambda state: (state.run_id, state.policy, state.in_replay) == in_force, states)
    return [state.equity for state in traded][::-1]


def _tested_returns(store: Store, active: ActivePolicy) -> NDArray[np.float64]:
    where = {"spec_hash": [active.spec_hash], "run_id": [active.run_id]}
    curves = store.tables.read(EQUITY_CURVES, where, ["policy", "session", "net_return"])
    return curves.filter(pl.col("policy") == active.policy).sort("session")["net_return"].to_numpy()
