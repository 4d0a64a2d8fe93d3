"""Return statistics of every account, per test window and over all windows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.prudex.measures import EXTREME_MARKETS, ExtremeMarket
from nvtrader_pipelines.evaluation.prudex.profitability import excess_growth, excess_growth_slope
from nvtrader_pipelines.evaluation.prudex.record import BASELINE, REFERENCE, PrudexRecord
from nvtrader_pipelines.evaluation.prudex.risk_control import downside_deviation, sessions_within
from nvtrader_pipelines.evaluation.statistics import (
    UndefinedStatisticError,
    annual_volatility,
    calmar_ratio,
    max_drawdown,
    sharpe_ratio,
    sortino_ratio,
    total_return,
    value_or_reason,
)

WINDOWS = {
    "run_id": pl.String,
    "source": pl.String,
    "policy": pl.String,
    "kind": pl.String,
    "fold": pl.Int32,  # null for statistics over all windows
    "first": pl.Date,
    "last": pl.Date,
    "statistic": pl.String,
    "value": pl.Float64,
    "note": pl.String,
    "ruined": pl.Boolean,  # whether all was lost by the last session
}
_RUINED_VALUES = {"total_return": -1.0, "max_drawdown": 1.0}  # other statistics are undefined
Row = tuple[Any, ...]  # by WINDOWS


@dataclass(frozen=True, eq=False)
class _Walk:
    """Returns of one account over its test windows."""

    key: tuple[Any, ...]  # run_id, source, policy, kind
    sessions: NDArray[np.datetime64]  # (n,)
    folds: NDArray[np.int32]  # (n,)
    returns: NDArray[np.float64]  # (n,) net
    periods_per_year: int

    @property
    def ruin(self) -> np.datetime64 | None:
        """Session in which all was lost; None if it was not."""
        lost = self.returns <= -1.0
        return self.sessions[lost.argmax()] if lost.any() else None

    @property
    def statistics(self) -> dict[str, Callable[[NDArray[np.float64]], float]]:
        """Statistics of the returns of a window, by name."""
        annual = {"periods_per_year": self.periods_per_year}
        return {
            "total_return": total_return,
            "volatility": partial(annual_volatility, **annual),
            "downside_deviation": partial(downside_deviation, **annual),
            "max_drawdown": max_drawdown,
            "sharpe": partial(sharpe_ratio, **annual),
            "calmar": partial(calmar_ratio, **annual),
            "sortino": partial(sortino_ratio, **annual),
        }


def return_windows(record: PrudexRecord) -> pl.DataFrame:
    """Rows of WINDOWS: profit, risk and ratios per window; decay, equity and extreme markets per account.

    Raises:
        ValueError: if the accounts of a run do not cover the same sessions once each, or a return is not finite.
    """
    rows: list[Row] = []
    for walks in _walks(record):
        _require_common_sessions(walks)
        market = next((walk for walk in walks if walk.key[2:] == (REFERENCE, BASELINE)), None)
        for walk in walks:
            rows += [*_fold_rows(walk), *_overall_rows(walk, market)]
    return pl.DataFrame(rows, schema=WINDOWS, orient="row")


def _walks(record: PrudexRecord) -> Iterator[list[_Walk]]:
    """Yield the walks of each run's accounts."""
    accounts = (
        record.curves.group_by("run_id", "policy", "kind")
        .agg(pl.col("session", "fold", "net_return").sort_by("session"))
        .join(record.runs.select("run_id", "source"), on="run_id")
        .sort("run_id", "kind", "policy")
    )
    for run in accounts.partition_by("run_id", maintain_order=True):
        keys = run.select("run_id", "source", "policy", "kind").iter_rows()
        yield [
            _Walk(
                key,
                sessions.to_numpy().astype("datetime64[D]"),
                folds.to_numpy().astype(np.int32),
                returns.to_numpy().astype(np.float64),
                record.calendars.of(key[1]).periods_per_year,
            )
            for key, sessions, folds, returns in zip(keys, run["session"], run["fold"], run["net_return"], strict=True)
        ]


def _require_common_sessions(walks: list[_Walk]) -> None:
    first = walks[0]
    is_unique = len(np.unique(first.sessions)) == len(first.sessions)
    for walk in walks:
        is_same = np.array_equal(walk.sessions, first.sessions) and np.array_equal(walk.folds, first.folds)
        if not (is_same and is_unique):
            raise ValueError(f"a run needs equal sessions of its accounts, but {walk.key[2]} and {first.key[2]} differ")
        if not np.isfinite(walk.returns).all():
            raise ValueError(f"net returns must be finite, but some of {walk.key[2]} of run {walk.key[0]} are not")


def _fold_rows(walk: _Walk) -> Iterator[Row]:
    for fold in np.unique(walk.folds):
        inside = walk.folds == fold
        sessions, returns = walk.sessions[inside], walk.returns[inside]
        for name, statistic in walk.statistics.items():
            answer = _with_ruin(walk, sessions[-1], name, value_or_reason(partial(statistic, returns)))
            yield (*walk.key, int(fold), sessions[0].item(), sessions[-1].item(), name, *answer)


def _overall_rows(walk: _Walk, market: _Walk | None) -> Iterator[Row]:
    span = (None, walk.sessions[0].item(), walk.sessions[-1].item())
    yield (*walk.key, *span, "final_equity", 1.0 + total_return(walk.returns), None, False)
    slope = _with_ruin(walk, walk.sessions[-1], "slope", value_or_reason(partial(_slope, walk, market)))
    yield (*walk.key, *span, "excess_growth_slope", *slope)
    for extreme in EXTREME_MARKETS:
        window = (None, extreme.first, extreme.last)
        for name in ("total_return", "sharpe"):
            answer = value_or_reason(partial(_during, walk, extreme, walk.statistics[name]))
            if answer[0] is None:  # the windows do not cover it
                yield (*walk.key, *window, f"{name}:{extreme.name}", *answer, False)
            else:
                answer = _with_ruin(walk, np.datetime64(extreme.last, "D"), name, answer)
                yield (*walk.key, *window, f"{name}:{extreme.name}", *answer)


def _with_ruin(
    walk: _Walk, until: np.datetime64, name: str, found: tuple[float | None, str | None]
) -> tuple[float | None, str | None, bool]:
    """Value, note and ruin flag; after ruin, values are replaced, since no holdings would look like no risk."""
    if walk.ruin is None or walk.ruin > until:
        return *found, False
    return _RUINED_VALUES.get(name), f"all was lost on {walk.ruin}", True


def _slope(walk: _Walk, market: _Walk | None) -> float:
    if market is None:
        raise UndefinedStatisticError(f"the run has no baseline {REFERENCE}, the market's average")
    windows = [walk.folds == fold for fold in np.unique(walk.folds)]
    excess = [excess_growth(walk.returns[w], market.returns[w], walk.periods_per_year) for w in windows]
    return excess_growth_slope(np.array(excess))


def _during(walk: _Walk, extreme: ExtremeMarket, statistic: Callable[[NDArray[np.float64]], float]) -> float:
    return statistic(walk.returns[sessions_within(walk.sessions, extreme)])
