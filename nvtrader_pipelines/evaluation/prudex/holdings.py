"""Holdings of every account in each test window, and their statistics."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

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
    filled = record.actions.drop_nulls("executed_weights").join(record.runs.select("run_id", "source"), on="run_id")
    order = ["run_id", "kind", "policy", "fold", "session"]
    for rows in filled.sort(order).partition_by(order[:-1], maintain_order=True):
        symbols = rows["symbols"].unique()
        if len(symbols) != 1:
            raise ValueError(f"the names of {rows['policy'][0]} change within a window: {len(symbols)} sets")
        names = tuple(symbols[0].to_list())
        yield WindowHoldings(
            *rows.select("run_id", "source", "policy", "kind", "fold").row(0),
            symbols=names[:-1],
            sessions=rows["session"].to_numpy().astype("datetime64[D]"),
            weights=rows["executed_weights"].explode().to_numpy().reshape(-1, len(names))[:, :-1],
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
    market = _ReturnsCache(record.returns)
    rows: list[Row] = []
    for each in held:
        first, last = spans[each.run_id, each.fold]
        key = (each.run_id, each.source, each.policy, each.kind, each.fold, first, last)
        returns = market.returns(each.source, first, last, each.symbols)
        rows += [(*key, *found, False) for found in _numbers(each.weights, returns)]
    return pl.DataFrame(rows, schema=WINDOWS, orient="row")


def _numbers(weights: NDArray[np.float64], returns: NDArray[np.float64]) -> Iterator[tuple[Any, ...]]:
    yield "entropy", float(weight_entropy(weights).mean()), None
    yield "largest_weight", float(np.abs(weights).max(axis=1).mean()), None
    yield "average_correlation", *value_or_reason(partial(_correlation, weights, returns))
    yield "effective_bets", *value_or_reason(partial(_bets, weights, returns))


def _correlation(weights: NDArray[np.float64], returns: NDArray[np.float64]) -> float:
    moving = _moving_names(returns)
    return average_correlation(weights[:, moving], np.atleast_2d(np.corrcoef(returns[:, moving], rowvar=False)))


def _bets(weights: NDArray[np.float64], returns: NDArray[np.float64]) -> float:
    moving = _moving_names(returns)
    return effective_bets(weights[:, moving], np.atleast_2d(np.cov(returns[:, moving], rowvar=False)))


def _moving_names(returns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether a name's price moved in the window; otherwise it is like cash."""
    moving = np.ptp(returns, axis=0) > 0.0 if len(returns) >= MIN_SESSIONS else np.zeros(returns.shape[1], dtype=bool)
    if not moving.any():
        raise UndefinedStatisticError(
            f"correlations need {MIN_SESSIONS} sessions with varying returns, but gold.returns has {len(returns)}"
        )
    return moving


class _ReturnsCache:
    """Cache of window returns, which many accounts share."""

    def __init__(self, returns: pl.DataFrame) -> None:
        self._wide = {
            str(source): rows.pivot("symbol", index="session", values="close_return").sort("session")
            for (source,), rows in returns.partition_by("source", as_dict=True).items()
        }
        self._cache: dict[tuple[str, date, date, tuple[str, ...]], NDArray[np.float64]] = {}

    def returns(self, source: str, first: date, last: date, symbols: tuple[str, ...]) -> NDArray[np.float64]:
        """Simple returns (sessions, names) from the first to the last session."""
        key = (source, first, last, symbols)
        if key not in self._cache:
            wide = self._wide.get(source, pl.DataFrame(schema={"session": pl.Date}))
            inside = wide.filter(pl.col("session").is_between(first, last))
            flat = np.zeros(len(inside))  # for a name that is no longer in the market
            columns = [inside[name].fill_null(0.0).to_numpy() if name in wide.columns else flat for name in symbols]
            self._cache[key] = np.column_stack(columns)
        return self._cache[key]
