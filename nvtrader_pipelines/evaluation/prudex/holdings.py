"""The numbers of what every account held in each test window, and pictures' rows of the same."""

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
from nvtrader_pipelines.evaluation.prudex.windows import WINDOWS, Row, measured
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

MIN_SESSIONS = 3  # a correlation of two sessions is always 1 or -1


@dataclass(frozen=True, eq=False)
class Holdings:
    """What one account held in one test window of one market."""

    run_id: str
    source: str
    policy: str
    kind: str
    fold: int
    symbols: tuple[str, ...]  # (N,) without cash
    sessions: NDArray[np.datetime64]  # (n,) of the decisions
    weights: NDArray[np.float64]  # (n, N) after the fill


def holdings(record: PrudexRecord) -> Iterator[Holdings]:
    """Each account's holdings in each test window, accounts and windows in their order.

    Raises:
        ValueError: if the names of an account change within a window.
    """
    filled = record.actions.drop_nulls("executed_weights").join(record.runs.select("run_id", "source"), on="run_id")
    order = ["run_id", "kind", "policy", "fold", "session"]
    for rows in filled.sort(order).partition_by(order[:-1], maintain_order=True):
        symbols = rows["symbols"].unique()
        if len(symbols) != 1:
            raise ValueError(f"{rows['policy'][0]} holds {len(symbols)} sets of names in one window; one is needed")
        names = tuple(symbols[0].to_list())
        yield Holdings(
            *rows.select("run_id", "source", "policy", "kind", "fold").row(0),
            symbols=names[:-1],
            sessions=rows["session"].to_numpy().astype("datetime64[D]"),
            weights=rows["executed_weights"].explode().to_numpy().reshape(-1, len(names))[:, :-1],
        )


def holding_windows(record: PrudexRecord, held: list[Holdings]) -> pl.DataFrame:
    """Rows of WINDOWS: entropy, correlation, bets and the largest weight of each account in each test window.

    Correlations are of the window's own sessions, known only afterwards; a session without a bar counts as a return
    of 0, as the account did.
    """
    spans = {
        (run_id, fold): (first, last)
        for run_id, fold, first, last in record.curves.group_by("run_id", "fold")
        .agg(pl.col("session").min().alias("first"), pl.col("session").max().alias("last"))
        .iter_rows()
    }
    market = _Market(record.returns)
    rows: list[Row] = []
    for each in held:
        first, last = spans[each.run_id, each.fold]
        key = (each.run_id, each.source, each.policy, each.kind, each.fold, first, last)
        returns = market.returns(each.source, first, last, each.symbols)
        rows += [(*key, *found, False) for found in _numbers(each.weights, returns)]
    return pl.DataFrame(rows, schema=WINDOWS, orient="row")


def _numbers(weights: NDArray[np.float64], returns: NDArray[np.float64]) -> Iterator[tuple[Any, ...]]:
    """Statistic, value and note."""
    yield "entropy", float(weight_entropy(weights).mean()), None
    yield "largest_weight", float(np.abs(weights).max(axis=1).mean()), None
    yield "average_correlation", *measured(partial(_correlation, weights, returns))
    yield "effective_bets", *measured(partial(_bets, weights, returns))


def _correlation(weights: NDArray[np.float64], returns: NDArray[np.float64]) -> float:
    moved = _moved(returns)
    return average_correlation(weights[:, moved], np.atleast_2d(np.corrcoef(returns[:, moved], rowvar=False)))


def _bets(weights: NDArray[np.float64], returns: NDArray[np.float64]) -> float:
    moved = _moved(returns)
    return effective_bets(weights[:, moved], np.atleast_2d(np.cov(returns[:, moved], rowvar=False)))


def _moved(returns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Names whose price moved in the window; one that did not is like cash."""
    moved = np.ptp(returns, axis=0) > 0.0 if len(returns) >= MIN_SESSIONS else np.zeros(returns.shape[1], dtype=bool)
    if not moved.any():
        raise UndefinedStatisticError(
            f"correlations need {MIN_SESSIONS} sessions with returns that vary, but gold.returns has {len(returns)}"
        )
    return moved


class _Market:
    """Returns of a window's names; asked for once per window, though many accounts share it."""

    def __init__(self, returns: pl.DataFrame) -> None:
        self._wide = {
            str(source): rows.pivot("symbol", index="session", values="close_return").sort("session")
            for (source,), rows in returns.partition_by("source", as_dict=True).items()
        }
        self._found: dict[tuple[str, date, date, tuple[str, ...]], NDArray[np.float64]] = {}

    def returns(self, source: str, first: date, last: date, symbols: tuple[str, ...]) -> NDArray[np.float64]:
        """Simple returns (sessions, names) from the first to the last session."""
        key = (source, first, last, symbols)
        if key not in self._found:
            wide = self._wide.get(source, pl.DataFrame(schema={"session": pl.Date}))
            inside = wide.filter(pl.col("session").is_between(first, last))
            flat = np.zeros(len(inside))  # of a name that the market has lost since
            columns = [inside[name].fill_null(0.0).to_numpy() if name in wide.columns else flat for name in symbols]
            self._found[key] = np.column_stack(columns)
        return self._found[key]
