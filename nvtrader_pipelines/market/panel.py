"""Market as dense arrays over (session, symbol), the input of all decisions."""

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.market.history import (
    PriceHistory,
    ReadOnlyArrays,
    bar_arrays,
    lag,
    positions,
    price_history,
)
from nvtrader_pipelines.market.returns import calendar_gaps
from nvtrader_pipelines.market.tables import PANELS

_KEYS = ("source", "symbol", "session", "year")
_RANGES = ("high_returns", "low_returns")  # outside the digest of a market without them
PANEL_ARRAYS = ("close_returns", "overnight_returns", "tradable", "delisted", "eligible", "features", *_RANGES)
Window = tuple[int, int]  # first and last session, inclusive


class UnusableSymbol(NamedTuple):
    """Symbol that can be in no panel, as parts of a sentence."""

    symbol: str
    reason: str
    cure: str


@dataclass(frozen=True, eq=False)
class MarketPanel(ReadOnlyArrays):
    """Aligned, read-only arrays of one source; row `t` is known at the close of `sessions[t]`.

    `close_returns[t]` is earned from the last known close before `t` to the close of `t`; the other returns are from
    that close to the open, high and low of `t`. Where a symbol has no price at `t`, its returns are 0 (positions are
    valued at the last price) and `tradable` is False.
    """

    source: str
    sessions: NDArray[np.datetime64]  # (T,) days, ascending
    symbols: tuple[str, ...]  # N names, sorted
    close_returns: NDArray[np.float64]  # (T, N) fractions
    overnight_returns: NDArray[np.float64] | None  # (T, N) last known close to open of t; None without opens
    high_returns: NDArray[np.float64] | None  # (T, N) last known close to high of t; None without highs
    low_returns: NDArray[np.float64] | None  # (T, N) last known close to low of t; None without lows
    tradable: NDArray[np.bool_]  # (T, N) a price is known at t
    delisted: NDArray[np.bool_]  # (T, N) listed before, and without a price for more than `max_gap` sessions
    eligible: NDArray[np.bool_]  # (T, N) tradable with every feature known: may be bought
    features: NDArray[np.float64]  # (T, N, F), 0 where not eligible
    feature_names: tuple[str, ...]
    calendar: TradingCalendar
    snapshot_ids: Mapping[str, int] = field(default_factory=dict)  # table name to Iceberg snapshot id
    left_out: Mapping[str, str] = field(default_factory=dict)  # symbol to a message: why, and the cure

    def feature(self, name: str) -> NDArray[np.float64]:
        """Return one feature as (T, N).

        Raises:
            KeyError: if the panel has no such feature.
        """
        if name not in self.feature_names:
            raise KeyError(f"the panel of {self.source!r} has no feature {name!r}; it has {self.feature_names}")
        return self.features[:, :, self.feature_names.index(name)]

    def index_of(self, session: np.datetime64) -> int:
        """Index of the first session on or after the given day; T if there is none."""
        return int(np.searchsorted(self.sessions, session))


def normalize_windows(window: Window | Sequence[Window]) -> tuple[Window, ...]:
    """Return one window or several (in time order) as a tuple of windows."""
    return tuple((first, last) for first, last in np.reshape(window, (-1, 2)).tolist())


def window_mask(windows: Sequence[Window], n_sessions: int) -> NDArray[np.bool_]:
    """Whether each session is in one of the windows, (T,)."""
    inside = np.zeros(n_sessions, dtype=np.bool_)
    for first, last in windows:
        inside[first : last + 1] = True
    return inside


def map_arrays(panel: MarketPanel, change: Callable[[NDArray[Any]], NDArray[Any]], **others: Any) -> MarketPanel:
    """Return a panel with every array over (session, symbol) changed, and other fields replaced."""
    arrays = {name: getattr(panel, name) for name in PANEL_ARRAYS}
    changed = {name: None if array is None else change(array) for name, array in arrays.items()}
    return replace(panel, **changed, **others)


def concat_windows(panel: MarketPanel, windows: Sequence[Window]) -> MarketPanel:
    """Return a panel of the windows' sessions alone, joined without the sessions between them."""
    inside = window_mask(windows, len(panel.sessions))
    return map_arrays(panel, lambda array: array[inside], sessions=panel.sessions[inside])


def build_panel(
    returns: pl.DataFrame,
    features: pl.DataFrame,
    calendar: TradingCalendar,
    symbols: Sequence[str] | None = None,
    max_gap: int = 5,
    snapshot_ids: Mapping[str, int] | None = None,
) -> MarketPanel:
    """Build the panel of one source from its first session with an eligible symbol.

    The panel has every session of the calendar up to the last bar. A name without a price is not tradable and its
    returns are 0; after more than `max_gap` such sessions it counts as delisted, without hindsight. A bar without an
    open is first priced at its close, so its overnight return is its close return; one without a high or low has the
    higher or lower of its open and close. For a source without volume, the features of volume are left out. No array
    holds a NaN.

    Args:
        returns: rows of `gold.returns` of one source.
        features: rows of `gold.features` for the same bars.
        calendar: calendar of the source.
        symbols: names to include; None includes all that are usable.
        max_gap: most sessions in a row that a listed name may lack a price and return.
        snapshot_ids: snapshot of each table that the rows are from.

    Raises:
        ValueError: if a symbol is unknown or named and unusable (it returns after a longer gap, or lacks a feature that
            the others have), none is usable, or none is ever eligible.
    """
    rows = _select_symbols(_join(returns, features), symbols)
    rows, names, unusable = _usable_rows(rows, features.columns, max_gap, calendar)
    if unusable and symbols is not None:
        problems = (f"{name} {why}: {cure}, or leave {name} out of market.symbols" for name, why, cure in unusable)
        raise ValueError("; ".join(problems))
    if rows.is_empty():
        raise ValueError(f"no symbol is usable: {unusable[0].symbol} {unusable[0].reason}; {unusable[0].cure}")
    history = price_history(rows, calendar)
    absent = _sessions_without_price(history)
    tradable = history.has_price
    known = np.full((*tradable.shape, len(names)), np.nan)
    known[positions(rows, history.sessions, history.symbols)] = rows.select(names).to_numpy()
    eligible = tradable & ~np.isnan(known).any(axis=2)
    known[~eligible] = 0.0
    start = _first_eligible(eligible, rows, names)
    return MarketPanel(
        source=str(rows["source"][0]),
        sessions=history.sessions[start:],
        symbols=history.symbols,
        **_returns_from_last_close(rows, history, start),
        tradable=tradable[start:],
        delisted=(absent > max_gap)[start:],
        eligible=eligible[start:],
        features=known[start:],
        feature_names=tuple(names),
        snapshot_ids=dict(snapshot_ids or {}),
        left_out={name: f"left out of the market ({why}); {cure}" for name, why, cure in unusable},
        calendar=calendar,
    )


@lru_cache(maxsize=8)  # of large arrays, which never change
def panel_digest(panel: MarketPanel) -> str:
    """SHA-256 of the panel's content without snapshot ids, as 64 hexadecimal digits."""
    state = hashlib.sha256(repr((panel.source, panel.symbols, panel.feature_names)).encode())
    days = panel.sessions.astype("datetime64[D]").astype(np.int64)
    has_ranges = any(getattr(panel, name) is not None for name in _RANGES)
    arrays = (getattr(panel, name) for name in PANEL_ARRAYS if has_ranges or name not in _RANGES)
    for array in (days, *arrays):
        state.update(b"none" if array is None else repr((array.dtype.str, array.shape)).encode())
        state.update(b"" if array is None else np.ascontiguousarray(array).data)
    return state.hexdigest()


def values_on_panel(values: NDArray[np.float64], history: PriceHistory, panel: MarketPanel) -> NDArray[np.float64]:
    """Select the panel's sessions and symbols from values of the history that it was built from, (T, N)."""
    rows = np.searchsorted(history.sessions, panel.sessions)
    columns = [history.symbols.index(symbol) for symbol in panel.symbols]
    return values[rows][:, columns]


def panel_row(panel: MarketPanel, built_at: dt.datetime) -> pl.DataFrame:
    """Describe the panel as its row of `gold.market_panel`."""
    ids = panel.snapshot_ids
    row = {
        "source": panel.source,
        "calendar": panel.calendar.name,
        "first_session": panel.sessions[0].item(),
        "last_session": panel.sessions[-1].item(),
        "n_sessions": len(panel.sessions),
        "n_symbols": len(panel.symbols),
        "symbols": list(panel.symbols),
        "feature_names": list(panel.feature_names),
        "digest": panel_digest(panel),
        "returns_snapshot_id": ids.get("gold.returns"),
        "features_snapshot_id": ids.get("gold.features"),
        "clean_bars_snapshot_id": ids.get("silver.clean_bars"),
        "bars_snapshot_id": ids.get("bronze.bars"),
        "series_snapshot_id": ids.get("silver.series"),
        "built_at": built_at,
    }
    return pl.DataFrame([row], schema=PANELS)


def _join(returns: pl.DataFrame, features: pl.DataFrame) -> pl.DataFrame:
    """Add the features to the rows of returns, which are most often of the same bars in the same order."""
    keys, values = list(_KEYS[:3]), features.drop("year")
    if returns.select(keys).equals(features.select(keys)):
        return returns.hstack(values.drop(keys))
    return returns.join(values, on=keys, how="left")


def _select_symbols(rows: pl.DataFrame, symbols: Sequence[str] | None) -> pl.DataFrame:
    known = set(rows["symbol"].unique())
    wanted = known if symbols is None else set(symbols)
    unknown = sorted(wanted - known)
    if unknown or not known:
        missing, found = ", ".join(unknown) or "any symbol", ", ".join(sorted(known)) or "none"
        raise ValueError(f"the market has no bars of {missing}; it has: {found}")
    return rows if wanted == known else rows.filter(pl.col("symbol").is_in(sorted(wanted)))  # a filter copies


def _usable_rows(
    rows: pl.DataFrame, columns: Sequence[str], max_gap: int, calendar: TradingCalendar
) -> tuple[pl.DataFrame, list[str], list[UnusableSymbol]]:
    """Rows of usable symbols, the features that they have, and the other symbols."""
    gappy = _long_gaps(rows, max_gap, calendar)
    rows = _without(rows, gappy)
    has_volume = rows["volume"].null_count() < len(rows)
    names = [
        name for name in columns if name not in _KEYS and (has_volume or "volume" not in name or "fundamental_" in name)
    ]
    partial = _missing_features(rows, names)
    return _without(rows, partial), names, [*gappy, *partial]


def _without(rows: pl.DataFrame, unusable: Sequence[UnusableSymbol]) -> pl.DataFrame:
    names = [symbol.symbol for symbol in unusable]
    return rows.filter(~pl.col("symbol").is_in(names)) if names else rows


def _long_gaps(rows: pl.DataFrame, max_gap: int, calendar: TradingCalendar) -> list[UnusableSymbol]:
    gaps = calendar_gaps(rows, calendar).filter(pl.col("n_sessions") > max_gap).sort("n_sessions", descending=True)
    longest = gaps.unique("symbol", keep="first", maintain_order=True).sort("symbol")
    return [
        UnusableSymbol(
            symbol,
            f"has no bar on {length} sessions from {first} to {last}, and max_gap allows {max_gap}",
            f"deliver the missing bars, or raise the experiment's market.max_gap to {length}",
        )
        for _, symbol, first, last, length in longest.iter_rows()
    ]


def _missing_features(rows: pl.DataFrame, names: Sequence[str]) -> list[UnusableSymbol]:
    """Symbols that never have one feature: they would silently stay out of every portfolio."""
    known = rows.group_by("symbol").agg(pl.col(name).is_not_null().any() for name in names).sort("symbol")
    # Where only one feature is never known, data is missing, not history.
    n_known = pl.sum_horizontal(names)
    partial = known.filter((n_known == len(names) - 1) & (n_known > 0))
    return [
        UnusableSymbol(
            symbol,
            f"never has the feature {names[flags.index(False)]!r}, which other symbols have",
            "deliver the data it needs (a volume, for instance)",
        )
        for symbol, *flags in partial.iter_rows()
    ]


def _returns_from_last_close(rows: pl.DataFrame, history: PriceHistory, start: int) -> dict[str, Any]:
    """Arrays of returns from session `start` on by name; None where the source never gives the price."""
    known = bar_arrays(rows, ["close_return", "overnight_return"], history.sessions, history.symbols)
    closes, overnight = known.values()
    before = lag(history.last_closes(), 1)
    opens = np.where(np.isnan(overnight), closes, overnight)
    highs = np.where(np.isnan(history.highs), np.maximum(opens, closes), history.highs / before - 1.0)
    lows = np.where(np.isnan(history.lows), np.minimum(opens, closes), history.lows / before - 1.0)
    given = {
        "close_returns": (closes, closes),
        "overnight_returns": (overnight, opens),
        "high_returns": (history.highs, highs),
        "low_returns": (history.lows, lows),
    }
    return {
        name: None if np.isnan(prices).all() else np.nan_to_num(returns[start:])
        for name, (prices, returns) in given.items()
    }


def _sessions_without_price(history: PriceHistory) -> NDArray[np.int64]:
    """Sessions since the last price, (T, N); 0 with a price and before the listing."""
    index = np.arange(len(history.sessions))[:, None]
    last = np.maximum.accumulate(np.where(history.has_price, index, -1), axis=0)
    return np.where(last < 0, 0, index - last)


def _first_eligible(eligible: NDArray[np.bool_], rows: pl.DataFrame, names: Sequence[str]) -> int:
    has_eligible = eligible.any(axis=1)
    if not has_eligible.any():
        never = [name for name in names if rows[name].null_count() == len(rows)]
        raise ValueError(
            f"no symbol of {rows['source'][0]!r} ever has all features known at once (never known: "
            f"{', '.join(never) or 'none'}): deliver a longer history, 253 bars for momentum_12_1"
        )
    return int(np.argmax(has_eligible))
