"""What every account earned in each regime of its market, and over the best baseline and the anchor."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, PERIODS_PER_YEAR, cagr, max_drawdown, sharpe_ratio

ALL = "all"  # the row of every session
ANCHORS = ("anchor", "equal_weight")  # baselines that a policy is held against, the first that is there
MIN_SESSIONS = 2  # a standard deviation needs two returns
MIN_SEGMENTS = 5  # fewer have too few resamples for tails of 2.5 %: four have 35; our choice

REGIME_EVALUATION = {
    "source": pl.String,
    "policy": pl.String,
    "kind": pl.String,
    "regime": pl.String,
    "n_sessions": pl.Int64,
    "share": pl.Float64,
    "n_segments": pl.Int64,
    "log_return": pl.Float64,
    "cagr": pl.Float64,
    "sharpe": pl.Float64,
    "sharpe_low": pl.Float64,
    "sharpe_high": pl.Float64,
    "max_drawdown": pl.Float64,
    "best_baseline": pl.String,
    "active_best": pl.Float64,
    "active_best_low": pl.Float64,
    "active_best_high": pl.Float64,
    "anchor": pl.String,
    "active_anchor": pl.Float64,
    "active_anchor_low": pl.Float64,
    "active_anchor_high": pl.Float64,
    "note": pl.String,
}

Triple = tuple[float | None, float | None, float | None]  # value, low, high
UNKNOWN: Triple = (None, None, None)


class SegmentIntervals(Component):
    """Bootstrap of whole segments: as many as the regime has are drawn with replacement, with all their sessions.

    A regime's sessions are stretches cut out of the record. A bootstrap of blocks over them, the stationary one too,
    would join sessions months apart; segments end at turning points, so they are the blocks. All accounts share the
    draws. Percentile intervals.

    Source: the bootstrap of clusters, Davison & Hinkley (1997), section 3.8.
    """

    n_draws: PositiveInt = 2000
    confidence_level: float = Field(default=0.95, gt=0.0, lt=1.0)

    def percentiles(self, draws: NDArray[np.float64]) -> tuple[float, float]:
        """Lower and upper bound of the drawn values."""
        tail = 0.5 * (1.0 - self.confidence_level)
        low, high = np.quantile(draws, (tail, 1.0 - tail))
        return float(low), float(high)


@dataclass(frozen=True, eq=False)
class _Record:
    """The accounts of a run over the same sessions, in columns."""

    source: str
    who: list[tuple[str, str]]  # name and kind of each account
    net_return: NDArray[np.float64]  # (n, accounts)
    segments: NDArray[np.int64]  # (n,)
    regimes: NDArray[np.object_]  # (n,) names
    best: int | None  # column of the best baseline
    anchor: int | None


@dataclass(frozen=True, eq=False)
class _Draws:
    """Resamples of a regime's segments: of each, its sessions and sums of returns (less their means) and squares."""

    n_sessions: NDArray[np.float64]  # (draws,)
    center: NDArray[np.float64]  # (accounts,)
    mean: NDArray[np.float64]  # (draws, accounts)
    variance: NDArray[np.float64]  # (draws, accounts), ddof 1
    intervals: SegmentIntervals
