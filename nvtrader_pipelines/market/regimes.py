"""Regimes of a market, labelled with hindsight: what it did from turning point to turning point."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import polars as pl
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.tables import REGIMES

FILTER_ORDER = 4
FILTER_SESSIONS = 16  # the fewest that the filter can be run over in both directions
REGIME_NAMES: dict[int, tuple[str, ...]] = {  # from the steepest fall to the steepest rise
    2: ("down", "up"),
    3: ("down", "sideways", "up"),
    4: ("strong_down", "weak_down", "sideways", "strong_up"),
    5: ("strong_down", "weak_down", "sideways", "weak_up", "strong_up"),
}


class SliceAndMergeRegimeParams(Component):
    """How a market is cut into regimes: slice at turning points, merge what is short, label by slope.

    The labels LOOK AHEAD, in three ways: the filter runs in both directions, a merge is decided by what comes
    later, and quantiles are those of the whole history. They are for judging by regime, never for deciding.
    By `quantile` the names are ranks: in a market that rises for decades its `sideways` rises, too.

    Source: slice-and-merge of TradeMaster's market dynamics (Qin et al. 2023), without its merging by dynamic time
    warping; on logarithms, so that a decade counts like another whatever the level.
    """

    dynamic_number: Annotated[int, Field(ge=2, le=5)] = 4  # regimes
    min_length_limit: Annotated[int, Field(ge=3)] = 12  # sessions of the shortest segment, and the filter's period
    labeling_method: Literal["quantile", "slope"] = "quantile"
    slope_interval: tuple[float, float] = (-0.0025, 0.0025)  # lowest and highest cut of `slope`, log return a session

    @model_validator(mode="after")
    def _cuts_rise(self) -> Self:
        low, high = self.slope_interval
        if low >= high:
            raise ValueError(f"slope_interval must rise from its lowest to its highest cut, but it is ({low}, {high})")
        return self

    @property
    def min_sessions(self) -> int:
        """The fewest sessions that can be labelled: each regime might have one segment."""
        return max(FILTER_SESSIONS, self.dynamic_number * self.min_length_limit)

    @property
    def names(self) -> tuple[str, ...]:
        """The regimes, from the steepest fall to the steepest rise."""
        return REGIME_NAMES[self.dynamic_number]

    def cuts(self, slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        """The slopes that part the regimes, (dynamic_number - 1,): quantiles of all segments' slopes, or fixed ones."""
        if self.labeling_method == "quantile":
            return np.quantile(slopes, np.arange(1, self.dynamic_number) / self.dynamic_number)
        low, high = self.slope_interval
        middle = 0.5 * (low + high)
        return np.array([middle]) if self.dynamic_number == 2 else np.linspace(low, high, self.dynamic_number - 1)


@dataclass(frozen=True, eq=False)
class RegimeSegments:
    """A market cut into segments, each of one regime."""

    starts: NDArray[np.int64]  # (K,) index of the first session of each segment, the first is 0
    slopes: NDArray[np.float64]  # (K,) of the filtered log index, per session
    labels: NDArray[np.int64]  # (K,) 0 is the steepest fall
    segments: NDArray[np.int64]  # (T,) number of the segment of each session


@dataclass(frozen=True, eq=False)
class RegimeLabels:
    """The regimes of several sources."""

    rows: pl.DataFrame  # as `gold.regimes`
    left_out: dict[str, str]  # source to the sentence why it has none

    @property
    def summary(self) -> str:
        """One line for a person."""
        without = "".join(f"; {source} has no regimes: it {why}" for source, why in self.left_out.items())
        return f"{len(self.rows)} sessions of {self.rows['source'].n_unique()} markets labelled{without}"


def segment_regimes(
    market_returns: NDArray[np.float64], params: SliceAndMergeRegimeParams | None = None
) -> RegimeSegments:
    """The segments and their regimes in a market's simple returns per session, (T,). They look ahead.

    A low-pass Butterworth filter of order 4 is run over the log index forwards and backwards, which has no delay, so
    turning points lie where they were; `lfilter` would place them late and still need the future for the merges.
    A segment begins where the filtered one-step return changes its sign; one shorter than `min_length_limit` goes on
    into the next, the last one into the one before it. The slope is that of a straight line through the filtered
    index. A slope equal to a cut belongs below it.

    Raises:
        ValueError: if the returns are too few, not finite, or not above -1.
    """
    chosen = params or SliceAndMergeRegimeParams()
    filtered = _low_pass(np.cumsum(np.log1p(_checked(market_returns, chosen))), chosen.min_length_limit)
    starts = _merged(_turning_points(filtered), len(filtered), chosen.min_length_limit)
    ends = np.append(starts[1:], len(filtered))
    slopes = np.array([_slope(filtered[start:end]) for start, end in zip(starts, ends, strict=True)])
    return RegimeSegments(
        starts=starts,
        slopes=slopes,
        labels=np.searchsorted(chosen.cuts(slopes), slopes, side="left"),
        segments=np.repeat(np.arange(len(starts)), ends - starts),
    )


def equal_weight_index(returns: pl.DataFrame) -> pl.DataFrame:
    """The market of one source as session, market_return (mean close return of its names) and index_level.

    The level is 1 before the first session, whose return is 0 as no name has a price before it.

    Args:
        returns: rows of `gold.returns` of one source.
    """
    mean = pl.col("close_return").mean().fill_null(0.0).alias("market_return")
    return (
        returns.sort("session", "symbol")
        .group_by("session", maintain_order=True)
        .agg(mean)
        .with_columns(index_level=(1.0 + pl.col("market_return")).cum_prod())
    )


def regime_labels(returns: pl.DataFrame, params: SliceAndMergeRegimeParams | None = None) -> RegimeLabels:
    """The regimes of every source's equally weighted market (`gold.regimes`). They look ahead.

    Args:
        returns: rows of `gold.returns`, the whole history of any number of sources; one that is too short to be
            labelled is left out.
        params: how to cut and label.

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
            parts.append(_labelled(source, index, chosen))
    return RegimeLabels(pl.concat(parts), left_out)


def _labelled(source: str, index: pl.DataFrame, params: SliceAndMergeRegimeParams) -> pl.DataFrame:
    found = segment_regimes(index["market_return"].to_numpy(), params)
    names = np.array(params.names, dtype=object)[found.labels]
    rows = index.with_columns(
        source=pl.lit(source),
        segment=pl.Series(found.segments),
        regime=pl.Series(names[found.segments], dtype=pl.String),
        slope=pl.Series(found.slopes[found.segments]),
    )
    return rows.select(pl.col(column).cast(kind) for column, kind in REGIMES.items())


def _checked(market_returns: NDArray[np.float64], params: SliceAndMergeRegimeParams) -> NDArray[np.float64]:
    if market_returns.ndim != 1 or len(market_returns) < params.min_sessions:
        raise ValueError(
            f"{params.dynamic_number} regimes of at least {params.min_length_limit} sessions need returns on one axis "
            f"over at least {params.min_sessions} sessions, but their shape is {market_returns.shape}; "
            "give a longer history or lower min_length_limit"
        )
    bad = ~np.isfinite(market_returns) | (market_returns <= -1.0)
    if bad.any():
        raise ValueError(
            f"a market's returns must be finite and above -1, but {int(bad.sum())} are not, the first at "
            f"{int(bad.argmax())}; repair the prices they are made of"
        )
    return market_returns


def _low_pass(levels: NDArray[np.float64], period: int) -> NDArray[np.float64]:
    """The levels without what swings faster than once in `period` sessions; 2 / period in units of Nyquist's."""
    return scipy.signal.sosfiltfilt(scipy.signal.butter(FILTER_ORDER, 2.0 / period, output="sos"), levels)


def _turning_points(filtered: NDArray[np.float64]) -> NDArray[np.int64]:
    """The sessions whose filtered one-step return has another sign than the one before."""
    signs = np.sign(np.diff(filtered))
    return np.flatnonzero(signs[1:] != signs[:-1]) + 2


def _merged(turning_points: NDArray[np.int64], n_sessions: int, shortest: int) -> NDArray[np.int64]:
    """The starts of segments of at least `shortest` sessions, 0 first."""
    starts = [0]
    for turn in turning_points.tolist():
        if turn - starts[-1] >= shortest and n_sessions - turn >= shortest:
            starts.append(turn)
    return np.array(starts, dtype=np.int64)


def _slope(filtered: NDArray[np.float64]) -> float:
    """Least squares, per session."""
    steps = np.arange(len(filtered)) - 0.5 * (len(filtered) - 1)
    return float(steps @ (filtered - filtered[0]) / (steps @ steps))
