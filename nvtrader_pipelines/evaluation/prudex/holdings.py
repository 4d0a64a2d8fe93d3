"""Holdings of every account in each test window, and their statistics."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.prudex.diversity import average_correlation, effective_bets, weight_entropy
from nvtrader_pipelines.evaluation.prudex.record import PrudexRecord
from nvtrader_pipelines.evaluation.prudex.return_windows import WINDOWS, Row
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, value_or_reason

MIN_SESSIONS = 3  # correlations over two sessions are always 1 or -1


@dataclass(frozen=True, eq=False)
class WindowHoldings:
    """Weights of one account in one test window of one market."""

    run_id: str
    source: str
    policy: str
    kind: str
    fold: int
    symbols: tuple[str, ...]  # (N,) without cash
    sessions: NDArray[np.datetime64]  # (n,) of the decisions
    weights: NDArray[np.float64]  # (n, N) after the fill


def holdings(record: PrudexRecord) -> Iterator[WindowHoldings]:
    """Yield each account's holdings in each test window, in order.

    Raises:
        ValueError: if an account's names change within a window.
    """
    window = ["run_id", "kind", "policy", "fold"]
    decisions = pl.col("executed_weights").sort_by("session").list.explode(keep_nulls=False, empty_as_null=False)
    rows = (
        record.actions.drop_nulls("executed_weights")
        .group_by(window)
        .agg(pl.col("symbols").unique(), pl.col("session").sort(), decisions)
        .join(record.runs.select("run_id", "source"), on="run_id")
        .sort(window)
    )
    accounts = rows.select("run_id", "source", "policy", "kind", "fold", "symbols").iter_rows()
    for (*account, symbols), sessions, weights in zip(accounts, rows["session"], rows["executed_weights"], strict=True):
        if len(symbols) != 1:
            raise ValueError(f"the names of {account[2]} change within a window: {len(symbols)} sets")
        names = tuple(symbols[0])
        yield WindowHoldings(
            *account,
            symbols=names[:-1],
            sessions=sessions.to_numpy().astype("datetime64[D]"),
            weights=weights.to_numpy().reshape(-1, len(names))[:, :-1],
        )


def holding_windows(record: PrudexRecord, held: list[WindowHoldings]) -> pl.DataFrame:
    """Rows of WINDOWS: entropy, correlation, bets and largest weight per account and test window.

    Correlations are over the window's own sessions, with hindsight; a session without a bar counts as a return of 0,
    as in the account.
    """
    spans = {
        (run_id, fold): (first, last)
        for run_id, fold, first, last in record.curves.group_by("run_id", "fold")
        .agg(pl.col("session").min().alias("first"), pl.col("session").max().alias("last"))
        .iter_rows()
    }
    moments = cache(partial(_Moments.of, _returns_by_source(record)))  # many accounts share a window
    rows: list[Row] = []
    for walk in held:
        window = spans[walk.run_id, walk.fold]
        key = (walk.run_id, walk.source, walk.policy, walk.kind, walk.fold, *window)
        found = _numbers(walk.weights, partial(moments, walk.source, *window, walk.symbols))
        rows += [(*key, *number, False) for number in found]
    return pl.DataFrame(rows, schema=WINDOWS, orient="row")


def _returns_by_source(record: PrudexRecord) -> dict[str, pl.DataFrame]:
    """Simple returns by market source: session, and a column per symbol."""
    return {
        str(source): rows.pivot("symbol", index="session", values="close_return").sort("session")
        for (source,), rows in record.returns.partition_by("source", as_dict=True).items()
    }


@dataclass(frozen=True, eq=False)
class _Moments:
    """Moments of the returns of the names that moved in a window; the others are like cash."""

    moving: NDArray[np.bool_]  # (N,) whether each name moved
    correlation: NDArray[np.float64]  # (M, M) of the M names that moved
    covariance: NDArray[np.float64]  # (M, M)

    @classmethod
    def of(
        cls, returns: dict[str, pl.DataFrame], source: str, first: date, last: date, symbols: tuple[str, ...]
    ) -> Self:
        """Estimate the moments from the first to the last session.

        Raises:
            UndefinedStatisticError: if there are too few sessions, or no name moved.
        """
        market = returns.get(source, pl.DataFrame(schema={"session": pl.Date}))
        inside = market.filter(pl.col("session").is_between(first, last))
        flat = np.zeros(len(inside))  # for a name that is no longer in the market
        wide = np.column_stack(
            [inside[name].fill_null(0.0).to_numpy() if name in inside.columns else flat for name in symbols]
        )
        if len(inside) < MIN_SESSIONS or not (moving := np.ptp(wide, axis=0) > 0.0).any():
            raise UndefinedStatisticError(
                f"correlations need {MIN_SESSIONS} sessions with varying returns, but gold.returns has {len(inside)}"
            )
        moved = wide[:, moving]
        return cls(moving, np.atleast_2d(np.corrcoef(moved, rowvar=False)), np.atleast_2d(np.cov(moved, rowvar=False)))


def _numbers(weights: NDArray[np.float64], moments: Callable[[], _Moments]) -> Iterator[tuple[Any, ...]]:
    yield "entropy", float(weight_entropy(weights).mean()), None
    yield "largest_weight", float(np.abs(weights).max(axis=1).mean()), None
    yield (
        "average_correlation",
        *value_or_reason(lambda: average_correlation(weights[:, moments().moving], moments().correlation)),
    )
    yield "effective_bets", *value_or_reason(lambda: effective_bets(weights[:, moments().moving], moments().covariance))
