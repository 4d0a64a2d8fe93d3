"""Verdict on a walk-forward back-test: every account per fold, before and from a date, and overall."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from math import sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.account_statistics import cost_per_year, effective_names, exposure, turnover_per_year
from nvtrader_pipelines.evaluation.aggregates import MIN_SEEDS, interquartile_mean
from nvtrader_pipelines.evaluation.intervals import BOOTSTRAP_SEED, SharpeDraws, SharpeIntervals, lo_interval
from nvtrader_pipelines.evaluation.sharpe.error import iid_standard_error
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, sharpe_ratio, statistics_of
from nvtrader_pipelines.evaluation.verdict_tables import EVALUATION

MIN_SESSIONS = 2  # for a standard deviation
PATH = "/path-"  # in names of accounts that follow a path through folds; their kind is policy, as of seeds
_VALUES = ("net_return", "turnover", "cost", "cash", "names_held")  # of an account in a session


@dataclass(frozen=True, eq=False)
class _Accounts:
    """Accounts over the same sessions, in columns."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    sessions: NDArray[np.datetime64]  # (n,)
    folds: NDArray[np.int64]  # (n,)
    net_return: NDArray[np.float64]  # (n, accounts)
    turnover: NDArray[np.float64]  # (n, accounts), one-way
    cost: NDArray[np.float64]  # (n, accounts), fraction of equity
    cash: NDArray[np.float64]  # (n, accounts), weight at the close
    names_held: NDArray[np.float64]  # (n, accounts), effective number after the last fill
    periods_per_year: int

    def filter(self, rows: NDArray[np.bool_]) -> "_Accounts":
        """Restrict the accounts to some sessions."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ("sessions", "folds", *_VALUES)})

    def of_kind(self, kind: str) -> list[int]:
        """Columns of the accounts of a kind."""
        return [i for i, own in enumerate(self.kinds) if own == kind]


def evaluate(
    curves: pl.DataFrame,
    actions: pl.DataFrame,
    report_from: date | None,
    periods_per_year: int,
    intervals: SharpeIntervals | None = None,
) -> pl.DataFrame:
    """Evaluate every account per period: each `fold`, `before_<year>`, `from_<year>` and `all`.

    `best_baseline` has the highest Sharpe ratio of the same period: picked with hindsight, in the baselines' favor.
    The difference of Sharpe ratios to it is paired by session; baselines have none. An ensemble of two or more seeds
    has the interquartile mean of its seeds' Sharpe ratios in the period's folds. Undefined statistics, such as a ratio
    to a loss where nothing was lost, are null. Periods of fewer than two sessions have no rows.

    Args:
        curves: a row per account and session: policy, kind, fold, session, net_return, turnover (one-way), cost
            (fraction of equity) and cash (weight).
        actions: a row per account and decision: policy, session and executed_weights, cash last; null where the order
            has not filled.
        report_from: first day of the period that is reported; None reports all sessions as one period.
        periods_per_year: sessions a year of the market.
        intervals: bootstrap of Sharpe ratios; None takes the defaults.

    Raises:
        ValueError: if there is no account, a number is missing, the accounts do not cover the same sessions once each,
            or one has a session before its first fill.
    """
    accounts = _accounts(curves, actions, periods_per_year)
    resampling = intervals or SharpeIntervals()
    rows = [
        row
        for period, fold, during in _periods(accounts, report_from)
        if during.sum() >= MIN_SESSIONS
        for row in _rows(accounts.filter(during), (period, fold), resampling)
    ]
    return pl.DataFrame(rows, schema=EVALUATION, orient="row")


def _accounts(curves: pl.DataFrame, actions: pl.DataFrame, periods_per_year: int) -> _Accounts:
    """Align the curves in columns, accounts in order of appearance."""
    _require_numbers(curves)
    accounts = curves.select("policy", "kind").unique(maintain_order=True)
    names = tuple(accounts["policy"])
    sessions = curves.select("session", "fold").unique().sort("session")
    incomplete = curves.group_by("policy").agg(pl.len(), pl.col("session").n_unique().alias("n"))
    bad = incomplete.filter((pl.col("len") != len(sessions)) | (pl.col("n") != len(sessions)))
    if len(bad) or len(names) != len(set(names)):
        found = ", ".join(f"{name}: {count}" for name, count in bad.select("policy", "len").sort("policy").rows())
        raise ValueError(f"every account must be once on each of {len(sessions)} sessions: {found or 'two kinds'}")
    per_account = _with_names_held(curves, actions).partition_by("policy", as_dict=True)

    def columns(value: str) -> NDArray[np.float64]:
        return np.column_stack([per_account[(name,)][value].to_numpy() for name in names])

    return _Accounts(
        names=names,
        kinds=tuple(accounts["kind"]),
        sessions=sessions["session"].to_numpy().astype("datetime64[D]"),
        folds=sessions["fold"].to_numpy().astype(np.int64),
        **{name: columns(name) for name in _VALUES},
        periods_per_year=periods_per_year,
    )


def _require_numbers(curves: pl.DataFrame) -> None:
    if curves.is_empty():
        raise ValueError("evaluate needs at least one account, but the curves have no rows; walk the run again")
    for name in _VALUES[:-1]:
        missing = curves.filter(~pl.col(name).is_finite().fill_null(value=False))
        if len(missing):
            policy, session, found = missing.select("policy", "session", name).row(0)
            raise ValueError(f"evaluate needs finite numbers, but {name} of {policy} is {found} at {session}")


def _with_names_held(curves: pl.DataFrame, actions: pl.DataFrame) -> pl.DataFrame:
    """Add the effective number of names held since the last fill, in session order."""
    filled = actions.filter(pl.col("executed_weights").is_not_null()).sort("session", maintain_order=True)
    n_weights = int(filled["executed_weights"].list.len().to_numpy().max(initial=1))
    weights = filled["executed_weights"].list.to_array(n_weights).to_numpy()
    held = filled.select("policy", "session", pl.Series("names_held", effective_names(weights[:, :-1])))
    ordered = curves.sort("session", maintain_order=True)
    # weights earn from the session after their decision
    joined = ordered.join_asof(held, on="session", by="policy", allow_exact_matches=False, check_sortedness=False)
    early = joined.filter(pl.col("names_held").is_null())
    if len(early):
        policy, session = early.select("policy", "session").row(0)
        raise ValueError(f"evaluate needs weights at each session, but {policy} has no fill before {session}")
    return joined


def _periods(accounts: _Accounts, report_from: date | None) -> list[tuple[str, int | None, NDArray[np.bool_]]]:
    """Name, fold and sessions of each period."""
    folds = [("fold", int(fold), accounts.folds == fold) for fold in np.unique(accounts.folds)]
    whole = ("all", None, np.ones(len(accounts.sessions), dtype=bool))
    if report_from is None:
        return [*folds, whole]
    reported = accounts.sessions >= np.datetime64(report_from, "D")
    parts = [(f"before_{report_from.year}", None, ~reported), (f"from_{report_from.year}", None, reported)]
    return [*folds, *parts, whole]


def _rows(accounts: _Accounts, period: tuple[str, int | None], intervals: SharpeIntervals) -> list[dict[str, object]]:
    periods_per_year, yearly = accounts.periods_per_year, sqrt(accounts.periods_per_year)
    draws = intervals.draw(accounts.net_return, periods_per_year)
    statistics = [statistics_of(column, periods_per_year) for column in accounts.net_return.T]
    n_sessions = len(accounts.sessions)
    of_period = {
        "period": period[0],
        "fold": period[1],
        "first_session": accounts.sessions[0].item(),
        "last_session": accounts.sessions[-1].item(),
        "n_sessions": n_sessions,
    }
    sharpes = [sharpe_ratio(column, periods_per_year) for column in accounts.net_return.T]
    errors = [iid_standard_error(sharpe / yearly, n_sessions) * yearly for sharpe in sharpes]
    seed_figures = _interquartile_figures(accounts)
    return [
        {
            "policy": name,
            "kind": accounts.kinds[i],
            **of_period,
            **statistics[i],
            **dict(zip(("sharpe_low", "sharpe_high"), draws.interval(i), strict=True)),
            "sharpe_error": errors[i],
            **_lo_bounds(accounts.net_return[:, i], periods_per_year),
            "turnover_per_year": turnover_per_year(accounts.turnover[:, i], periods_per_year),
            "cost_per_year": cost_per_year(accounts.cost[:, i], periods_per_year),
            "exposure": exposure(accounts.cash[:, i]),
            "effective_names": float(accounts.names_held[:, i].mean()),
            **(seed_figures if accounts.kinds[i] == "ensemble" else {}),
            **_best_baseline_difference(accounts, draws, sharpes, i),
        }
        for i, name in enumerate(accounts.names)
    ]


def _lo_bounds(returns: NDArray[np.float64], periods_per_year: int) -> Mapping[str, float]:
    """Bounds of the annual Sharpe ratio by Lo (2002); empty for constant returns."""
    try:
        interval = lo_interval(returns, periods_per_year)
    except UndefinedStatisticError:
        return {}
    return {"lo_low": interval.low, "lo_high": interval.high}


def _interquartile_figures(accounts: _Accounts) -> Mapping[str, float]:
    """Interquartile mean of Sharpe ratios by seed and fold; empty with too few seeds.

    Paths do not count as seeds: each decides by the average of all seeds.
    """
    seeds = [i for i in accounts.of_kind("policy") if PATH not in accounts.names[i]]
    if len(seeds) < MIN_SEEDS:
        return {}
    folds = [accounts.folds == fold for fold in np.unique(accounts.folds)]
    scores = [
        [sharpe_ratio(accounts.net_return[during, i], accounts.periods_per_year) for i in seeds]
        for during in folds
        if during.sum() >= MIN_SESSIONS
    ]
    if not scores:
        return {}
    mean = interquartile_mean(np.array(scores), np.random.default_rng(BOOTSTRAP_SEED))
    return {"iqm_sharpe": mean.point, "iqm_low": mean.low, "iqm_high": mean.high}


def _best_baseline_difference(
    accounts: _Accounts, draws: SharpeDraws, sharpes: list[float], i: int
) -> Mapping[str, object]:
    """Best baseline, difference of Sharpe ratios to it and its interval; empty for baselines."""
    best = max(accounts.of_kind("baseline"), key=sharpes.__getitem__, default=None)
    if best is None or accounts.kinds[i] == "baseline":
        return {}
    low, high = draws.difference(i, best)
    return {
        "best_baseline": accounts.names[best],
        "sharpe_difference": sharpes[i] - sharpes[best],
        "sharpe_difference_low": low,
        "sharpe_difference_high": high,
    }
