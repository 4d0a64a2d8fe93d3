"""Prices of one source as arrays over (session, symbol), from which features are computed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.market.series import as_of


class _Feature(Protocol):
    def values(self, history: "PriceHistory") -> NDArray[np.float64]: ...


class ReadOnlyArrays:
    """Base of dataclasses whose arrays no part may change, since every part reads the same ones."""

    def __post_init__(self) -> None:
        """Make every array read-only."""
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Rebuild by the constructor, since a pickle does not hold that its arrays are read-only."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


LOOK_BACK = 252  # earlier sessions that a value depends on; relative strength depends on all, with fading weights


@dataclass(frozen=True, eq=False)
class PriceHistory(ReadOnlyArrays):
    """Adjusted prices and volumes of every session from first to last bar; NaN where the bar has none."""

    sessions: NDArray[np.datetime64]  # (T,)
    symbols: tuple[str, ...]  # N names, sorted
    closes: NDArray[np.float64]  # (T, N) adjusted; NaN without a bar
    volumes: NDArray[np.float64]  # (T, N)
    highs: NDArray[np.float64]  # (T, N) adjusted
    lows: NDArray[np.float64]  # (T, N) adjusted
    opens: NDArray[np.float64]  # (T, N) adjusted
    calendar: TradingCalendar
    # outside series by field, (T, N) each: a value at the session at which it becomes known, NaN at the others
    series: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make every array read-only."""
        super().__post_init__()
        for values in self.series.values():
            _read_only(values)

    @property
    def has_price(self) -> NDArray[np.bool_]:
        """Whether a price is known, (T, N)."""
        return ~np.isnan(self.closes)

    def last_closes(self) -> NDArray[np.float64]:
        """Last known close at each session, (T, N); NaN before a name is listed."""
        return self._last_closes

    def log_returns(self) -> NDArray[np.float64]:
        """Log return since the last known close, (T, N); NaN without a price and on the first bar."""
        return self._log_returns

    def values_of(self, feature: "_Feature") -> NDArray[np.float64]:
        """Compute a feature once, (T, N); others may be derived from it."""
        if feature not in self._values:
            self._values[feature] = _read_only(feature.values(self))
        return self._values[feature]

    @cached_property
    def _values(self) -> dict["_Feature", NDArray[np.float64]]:
        return {}

    @cached_property
    def _last_closes(self) -> NDArray[np.float64]:
        return _read_only(forward_fill(self.closes))

    @cached_property
    def _log_returns(self) -> NDArray[np.float64]:
        return _read_only(np.log(self.closes / lag(self.last_closes(), 1)))

    def mask_unpriced(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Replace the values by NaN where no price is known, (T, N)."""
        return np.where(self.has_price, values, np.nan)

    def is_listed_for(self, n_sessions: int) -> NDArray[np.bool_]:
        """Whether a name had its first price at least `n_sessions` before, (T, N)."""
        return ~np.isnan(lag(self.last_closes(), n_sessions))

    def pick(self, numbers: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.float64]) -> pl.Series:
        """Pick the values of bars as a column, null instead of NaN."""
        picked = values[numbers, columns]
        return pl.Series(picked, nan_to_null=True, dtype=pl.Float64)


def _read_only(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array.flags.writeable = False
    return array


Positions = tuple[NDArray[np.int64], NDArray[np.int64]]


def positions(bars: pl.DataFrame, days: NDArray[np.datetime64], symbols: Sequence[str]) -> Positions:
    """Row and column of each bar in (T, N) arrays over ascending days and sorted symbols."""
    rows = np.searchsorted(days, bars["session"].to_numpy())
    columns = bars["symbol"].cast(pl.Enum(symbols)).to_physical()  # number in `symbols`
    return rows.astype(np.int64), columns.cast(pl.Int64).to_numpy()


def bar_arrays(
    bars: pl.DataFrame, names: Iterable[str], days: NDArray[np.datetime64], symbols: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Columns of bars as (T, N) arrays by name, NaN where there is no bar or its value is null."""
    at = positions(bars, days, symbols)
    arrays = {name: np.full((len(days), len(symbols)), np.nan) for name in names}
    for name, values in arrays.items():
        values[at] = bars[name].to_numpy()
    return arrays


def price_history(returns: pl.DataFrame, calendar: TradingCalendar, series: pl.DataFrame | None = None) -> PriceHistory:
    """Build the price history from rows of `gold.returns` of one source, on the sessions of its calendar.

    `series` are rows of `silver.series`, joined as of their publication.

    Raises:
        ValueError: if there is no row, or rows of more than one source.
    """
    sources = returns["source"].unique().to_list()
    if len(sources) != 1:
        raise ValueError(f"returns must be of exactly one source, but are of {sorted(sources)}")
    symbols = tuple(sorted(returns["symbol"].unique()))
    days_found = returns["session"].to_numpy()
    days = calendar.sessions(days_found.min(), days_found.max())
    arrays = bar_arrays(returns, ("adj_close", "volume", "adj_high", "adj_low", "adj_open"), days, symbols)
    closes, volumes, highs, lows, opens = arrays.values()
    joined = {} if series is None else as_of(series, days, symbols, calendar)
    return PriceHistory(days, symbols, closes, volumes, highs, lows, opens, calendar, joined)


def lag(values: NDArray[np.float64], n_sessions: int) -> NDArray[np.float64]:
    """Shift the values by `n_sessions`, (T, N); NaN before the history begins."""
    shifted = np.full_like(values, np.nan)
    shifted[n_sessions:] = values[: max(len(values) - n_sessions, 0)]
    return shifted


def forward_fill(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace NaN by the last known value of its column, (T, N)."""
    filled = values.copy()
    for before, row in pairwise(filled):
        np.copyto(row, before, where=np.isnan(row))
    return filled


def apply_rolling(values: NDArray[np.float64], expression: pl.Expr) -> NDArray[np.float64]:
    """Apply a rolling polars expression to every column of (T, N); NaN counts as missing."""
    n_sessions, n_names = values.shape
    columns = pl.Series(values.T.ravel(), nan_to_null=True)  # all at once: a series of each takes twice as long
    frame = pl.DataFrame([columns.slice(k * n_sessions, n_sessions).alias(str(k)) for k in range(n_names)])
    return frame.select(expression).to_numpy().astype(np.float64)
