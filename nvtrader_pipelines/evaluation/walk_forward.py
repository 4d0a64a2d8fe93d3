"""The verdict on a walk-forward back-test: every account over each fold, before and from a date, and overall."""

from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.intervals import SharpeDraws, SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import PERIODS_PER_YEAR, STATISTICS

MIN_SESSIONS = 2  # a standard deviation needs two returns

EVALUATION = {
    "policy": pl.String,
    "kind": pl.String,
    "period": pl.String,
    "fold": pl.Int32,
    "first_session": pl.Date,
    "last_session": pl.Date,
    "n_sessions": pl.Int64,
    "sharpe": pl.Float64,
    "sharpe_low": pl.Float64,
    "sharpe_high": pl.Float64,
    "cagr": pl.Float64,
    "volatility": pl.Float64,
    "max_drawdown": pl.Float64,
    "turnover_per_year": pl.Float64,
    "cost_per_year": pl.Float64,
    "best_baseline": pl.String,
    "sharpe_difference": pl.Float64,
    "difference_low": pl.Float64,
    "difference_high": pl.Float64,
}


@dataclass(frozen=True, eq=False)
class _Accounts:
    """The accounts over the same sessions, in columns."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    sessions: NDArray[np.datetime64]  # (n,)
    folds: NDArray[np.int64]  # (n,)
    net_return: NDArray[np.float64]  # (n, accounts)
    turnover: NDArray[np.float64]  # (n, accounts), one-way
    cost: NDArray[np.float64]  # (n, accounts), fraction of equity

    def during(self, rows: NDArray[np.bool_]) -> "_Accounts":
        """The same accounts over some sessions."""
        return _Accounts(
            names=self.names,
            kinds=self.kinds,
            sessions=self.sessions[rows],
            folds=self.folds[rows],
            net_return=self.net_return[rows],
            turnover=self.turnover[rows],
            cost=self.cost[rows],
        )

    def baselines(self) -> list[int]:
        """Columns of the baselines."""
        return [i for i, kind in enumerate(self.kinds) if kind == "baseline"]


def evaluate(
    curves: pl.DataFrame,
    report_from: date,
    intervals: SharpeIntervals | None = None,
    seed: int = 0,
) -> pl.DataFrame:
    """One row per account and period: `fold` (each), `before_<year>`, `from_<year>` and `all`.

    `curves` has one row per account and session: policy, kind, fold, session, net_return, turnover (one-way)
    and cost (fraction of equity). A policy's `best_baseline` is the one with the highest Sharpe ratio of the
    same period, so chosen with hindsight and in the baselines' favour; the difference to it is paired by
    session. Baselines have no such difference. A period with fewer than two sessions has no rows.

    Raises:
        ValueError: if the accounts do not cover the same sessions once each.
    """
    accounts = _accounts(curves)
    resampling = intervals or SharpeIntervals()
    rows = [
        row
        for number, (period, fold, during) in enumerate(_periods(accounts, report_from))
        if during.sum() >= MIN_SESSIONS
        for row in _rows(accounts.during(during), (period, fold), resampling, np.random.default_rng([seed, number]))
    ]
    return pl.DataFrame(rows, schema=EVALUATION, orient="row")


def _accounts(curves: pl.DataFrame) -> _Accounts:
    """The curves as aligned columns, accounts in their first order."""
    who = curves.select("policy", "kind").unique(maintain_order=True)
    names = tuple(who["policy"])
    sessions = curves.select("session", "fold").unique().sort("session")
    incomplete = curves.group_by("policy").agg(pl.len(), pl.col("session").n_unique().alias("n"))
    bad = incomplete.filter((pl.col("len") != len(sessions)) | (pl.col("n") != len(sessions)))
    if len(bad) or len(names) != len(set(names)):
        found = ", ".join(f"{name}: {count}" for name, count in bad.select("policy", "len").sort("policy").rows())
        raise ValueError(
            f"evaluate needs every account once on each of the {len(sessions)} sessions and in the same folds, "
            f"but found {found or 'an account of two kinds'}"
        )
    ordered = curves.sort("session", maintain_order=True)

    def columns(value: str) -> NDArray[np.float64]:
        per_account = ordered.partition_by("policy", as_dict=True)
        return np.column_stack([per_account[(name,)][value].to_numpy() for name in names])

    return _Accounts(
        names=names,
        kinds=tuple(who["kind"]),
        sessions=sessions["session"].to_numpy().astype("datetime64[D]"),
        folds=sessions["fold"].to_numpy().astype(np.int64),
        net_return=columns("net_return"),
        turnover=columns("turnover"),
        cost=columns("cost"),
    )


def _periods(accounts: _Accounts, report_from: date) -> list[tuple[str, int | None, NDArray[np.bool_]]]:
    """Name, fold and sessions of each period."""
    reported = accounts.sessions >= np.datetime64(report_from, "D")
    return [
        *(("fold", int(fold), accounts.folds == fold) for fold in np.unique(accounts.folds)),
        (f"before_{report_from.year}", None, ~reported),
        (f"from_{report_from.year}", None, reported),
        ("all", None, np.ones(len(reported), dtype=bool)),
    ]


def _rows(
    accounts: _Accounts,
    period: tuple[str, int | None],
    intervals: SharpeIntervals,
    generator: np.random.Generator,
) -> list[tuple[object, ...]]:
    """The period's row of every account."""
    draws = intervals.draw(accounts.net_return, generator)
    found = [{name: of(column) for name, of in STATISTICS.items()} for column in accounts.net_return.T]
    sharpes = [values["sharpe"] for values in found]
    best = max(accounts.baselines(), key=sharpes.__getitem__, default=None)
    n_sessions = len(accounts.sessions)
    span = (accounts.sessions[0].item(), accounts.sessions[-1].item(), n_sessions)
    per_year = PERIODS_PER_YEAR / n_sessions
    return [
        (
            name,
            accounts.kinds[i],
            *period,
            *span,
            sharpes[i],
            *draws.interval(i),
            *(found[i][statistic] for statistic in ("cagr", "volatility", "max_drawdown")),
            float(accounts.turnover[:, i].sum()) * per_year,
            float(accounts.cost[:, i].sum()) * per_year,
            *_against_best(accounts, draws, sharpes, (i, best)),
        )
        for i, name in enumerate(accounts.names)
    ]


def _against_best(
    accounts: _Accounts, draws: SharpeDraws, sharpes: list[float], pair: tuple[int, int | None]
) -> tuple[str | None, float | None, float | None, float | None]:
    """Name of the best baseline, the Sharpe difference to it and its interval; nothing for baselines."""
    i, best = pair
    if best is None or accounts.kinds[i] == "baseline":
        return (None, None, None, None)
    return (accounts.names[best], sharpes[i] - sharpes[best], *draws.difference(i, best))
