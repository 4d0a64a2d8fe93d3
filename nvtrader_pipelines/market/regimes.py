"""Regimes of a market between its turning points, labeled with hindsight."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import polars as pl
import scipy  # imports its submodules on first use
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.tables import REGIMES

FILTER_ORDER = 4
MIN_FILTER_SESSIONS = 16  # minimum for the filter in both directions
REGIME_NAMES: dict[int, tuple[str, ...]] = {  # from the steepest fall to the steepest rise
    2: ("down", "up"),
    3: ("down", "sideways", "up"),
    4: ("strong_down", "weak_down", "sideways", "strong_up"),
    5: ("strong_down", "weak_down", "sideways", "weak_up", "strong_up"),
}


class SliceAndMergeRegimeParams(Component):
    """Segmentation into regimes: slice at turning points, merge short segments, label by slope.

    The labels LOOK AHEAD in three ways: the filter runs in both directions, merges depend on later sessions, and
    quantiles are of the whole history. Use them to evaluate by regime, never to decide. With `quantile` the names are
    ranks: in a market that rises for decades, its `sideways` segments rise, too.

    Source: slice-and-merge of TradeMaster's market dynamics (Qin et al. 2023), without its merging by dynamic time
    warping; on logarithms, so that every decade counts alike at any price level.
    """

    dynamic_number: Annotated[int, Field(ge=2, le=5)] = 4  # regimes
    min_length_limit: Annotated[int, Field(ge=3)] = 12  # sessions: shortest segment, and period of the filter
    labeling_method: Literal["quantile", "slope"] = "quantile"
    slope_interval: tuple[float, float] = (-0.0025, 0.0025)  # lowest and highest cut of `slope`, log return per session

    @model_validator(mode="after")
    def _require_rising_cuts(self) -> Self:
        low, high = self.slope_interval
        if low >= high:
            raise ValueError(f"slope_interval must rise from its lowest to its highest cut, but it is ({low}, {high})")
        return self

    @property
    def min_sessions(self) -> int:
        """Minimum number of sessions: one segment per regime."""
        return max(MIN_FILTER_SESSIONS, self.dynamic_number * self.min_length_limit)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the regimes, from the steepest fall to the steepest rise."""
        return REGIME_NAMES[self.dynamic_number]

    def cuts(self, slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Slopes between the regimes, (dynamic_number - 1,): quantiles of the segments, or fixed."""
        if self.labeling_method == "quantile":
            return np.quantile(slopes, np.arange(1, self.dynamic_number) / self.dynamic_number)
        low, high = self.slope_interval
        middle = 0.5 * (low + high)
        return np.array([middle]) if self.dynamic_number == 2 else np.linspace(low, high, self.dynamic_number - 1)


@dataclass(frozen=True, eq=False)
class RegimeSegments:
    """Segments of a market, each of one regime."""

    starts: NDArray[np.int64]  # (K,) index of the first session of each segment; the first is 0
    slopes: NDArray[np.float64]  # (K,) of the filtered log index, per session
    labels: NDArray[np.int64]  # (K,) 0 is the steepest fall
    segments: NDArray[np.int64]  # (T,) number of the segment of each session


@dataclass(frozen=True, eq=False)
class RegimeLabels:
    """Regimes of several sources."""

    rows: pl.DataFrame  # as `gold.regimes`
    left_out: dict[str, str]  # source: reason why it has no regimes

    @property
    def summary(self) -> str:
        """Summary in one line."""
        without = "".join(f"; {source} has no regimes: it {why}" for source, why in self.left_out.items())
        return f"{len(self.rows)} sessions of {self.rows['source'].n_unique()} markets labeled{without}"


def segment_regimes(
    market_returns: NDArray[np.float64], params: SliceAndMergeRegimeParams | None = None
) -> RegimeSegments:
    """Segment a market by its session returns (T,) and label the regimes; looks ahead.

    A low-pass Butterworth filter of order 4 runs over the log index forwards and backwards, which has no delay, so
    turning points stay in place; `lfilter` would delay them and still need the future for the merges. A segment begins
    where the filtered one-step return changes its sign. A segment shorter than `min_length_limit` is merged into the
    next one, the last segment into the previous one. The slope is of a straight line through the filtered index; a
    slope equal to a cut belongs to the regime below.

    Raises:
        ValueError: if the returns are too few, not finite, or not above -1.
    """
    chosen = params or SliceAndMergeRegimeParams()
    filtered = _low_pass(np.cumsum(np.log1p(_require_valid_returns(market_returns, chosen))), chosen.min_length_limit)
    starts = _merge_segments(_turning_points(filtered), len(filtered), chosen.min_length_limit)
    ends = np.append(starts[1:], len(filtered))
    slopes = np.array([_slope(filtered[start:end]) for start, end in zip(starts, ends, strict=True)])
    return RegimeSegments(
        starts=starts,
        slopes=slopes,
        labels=np.searchsorted(chosen.cuts(slopes), slopes, side="left"),
        segments=np.repeat(np.arange(len(starts)), ends - starts),
    )


def equal_weight_index(returns: pl.DataFrame) -> pl.DataFrame:
    """Compute the equal-weight index of one source: session, market_return and index_level.

    market_return is the mean close return of the names. The level is 1 before the first session, whose return is 0,
    as no name has an earlier price.
    """
    mean = pl.col("close_return").mean().fill_null(0.0).alias("market_return")
    return (
        returns.sort("session", "symbol")
        .group_by("session", maintain_order=True)
        .agg(mean)
        .with_columns(index_level=(1.0 + pl.col("market_return")).cum_prod())
    )


def regime_labels(returns: pl.DataFrame, params: SliceAndMergeRegimeParams | None = None) -> RegimeLabels:
    """Label the regimes of each source's equal-weight index (`gold.regimes`); looks ahead.

    The rows of `gold.returns` are the whole history of any number of sources; those with too few sessions are left out.

    Raises:
        ValueError: if a market's returns are not finite or not above -1.
    """
    chosen = params or SliceAndMergeRegimeParams()
    parts, left_out = [REGIMES.to_frame()], {}
    for rows in returns.sort("source").partition_by("source", maintain_order=True):
        source, index = str(rows["source"][0]), equal_weight_index(rows)
        if len(index) < chosen.min_sessions:
            left_out[source] = f"has {len(index)} sessions and regimes need at least {chosen.min_sessions}"
        else:
            parts.append(_label_source(source, index, chosen))
    return RegimeLabels(pl.concat(parts), left_out)


def _label_source(source: str, index: pl.DataFrame, params: SliceAndMergeRegimeParams) -> pl.DataFrame:
    segments = segment_regimes(index["market_return"].to_numpy(), params)
    names = np.array(params.names, dtype=object)[segments.labels]
    rows = index.with_columns(
        source=pl.lit(source),
        segment=pl.Series(segments.segments),
        regime=pl.Series(names[segments.segments], dtype=pl.String),
        slope=pl.Series(segments.slopes[segments.segments]),
    )
    return rows.select(pl.col(column).cast(kind) for column, kind in REGIMES.items())


def _require_valid_returns(
    market_returns: NDArray[np.float64], params: SliceAndMergeRegimeParams
) -> NDArray[np.float64]:
    if market_returns.ndim != 1 or len(market_returns) < params.min_sessions:
        raise ValueError(
            f"{params.dynamic_number} regimes need returns (T,) with T of at least {params.min_sessions}, but their "
            f"shape is {market_returns.shape}; lengthen the history or lower min_length_limit"
        )
    bad = ~np.isfinite(market_returns) | (market_returns <= -1.0)
    if bad.any():
        raise ValueError(f"{int(bad.sum())} returns are not finite or not above -1, the first at {int(bad.argmax())}")
    return market_returns


def _low_pass(levels: NDArray[np.float64], period: int) -> NDArray[np.float64]:
    """Filter out swings shorter than `period` sessions: cutoff 2 / period of Nyquist's."""
    return scipy.signal.sosfiltfilt(scipy.signal.butter(FILTER_ORDER, 2.0 / period, output="sos"), levels)


def _turning_points(filtered: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sessions whose filtered one-step return differs in sign from the previous one."""
    signs = np.sign(np.diff(filtered))
    return np.flatnonzero(signs[1:] != signs[:-1]) + 2


def _merge_segments(turning_points: NDArray[np.int64], n_sessions: int, shortest: int) -> NDArray[np.int64]:
    """Merge segments until each has at least `shortest` sessions; returns their starts, 0 first."""
    starts = [0]
    for turn in turning_points.tolist():
        if turn - starts[-1] >= shortest and n_sessions - turn >= shortest:
            starts.append(turn)
    return np.array(starts, dtype=np.int64)


def _slope(filtered: NDArray[np.float64]) -> float:
    """Least-squares slope per session."""
    steps = np.arange(len(filtered)) - 0.5 * (len(filtered) - 1)
    return float(steps @ (filtered - filtered[0]) / (steps @ steps))
