"""A market as dense arrays over (session, symbol): all that environments, policies and baselines may see."""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.market.history import PriceHistory, bar_arrays, carried_forward, price_history
from nvtrader_pipelines.market.tables import PANELS

_KEYS = ("source", "symbol", "session", "year")
Window = tuple[int, int]  # first and last session, inclusive


@dataclass(frozen=True, eq=False)
class MarketPanel:
    """Aligned arrays of one source; row `t` holds what is known at the close of `sessions[t]`.

    `close_returns[t]` is earned from the last known close before `t` to the close of `t`; where a symbol
    has no price at `t` it is 0 (the position is carried at its last price) and `tradable` is False.
    """

    source: str
    sessions: NDArray[np.datetime64]  # (T,) days, ascending
    symbols: tuple[str, ...]  # N names, sorted
    close_returns: NDArray[np.float64]  # (T, N) fractions
    overnight_returns: NDArray[np.float64] | None  # (T, N) last known close to open of t; None without opens
    tradable: NDArray[np.bool_]  # (T, N) a price is known at t
    delisted: NDArray[np.bool_]  # (T, N) once listed, now without a price for more than `max_gap` sessions
    eligible: NDArray[np.bool_]  # (T, N) tradable and every feature known: may be given weight
    features: NDArray[np.float64]  # (T, N, F), 0 where not eligible
    feature_names: tuple[str, ...]
    snapshot_ids: Mapping[str, int] = field(default_factory=dict)  # table name to Iceberg snapshot id

    def feature(self, name: str) -> NDArray[np.float64]:
        """One feature as (T, N).

        Raises:
            KeyError: if the panel has no such feature.
        """
        if name not in self.feature_names:
            known = ", ".join(self.feature_names)
            raise KeyError(f"the panel of {self.source!r} has no feature {name!r}; it has: {known}")
        return self.features[:, :, self.feature_names.index(name)]

    def index_of(self, session: np.datetime64) -> int:
        """The first index whose session is on or after the given day (T if there is none)."""
        return int(np.searchsorted(self.sessions, session))


def windows_of(window: Window | Sequence[Window]) -> tuple[Window, ...]:
    """One window, or several in time order where the sessions between them are left out, as several."""
    return tuple((first, last) for first, last in np.reshape(window, (-1, 2)).tolist())


def within(windows: Sequence[Window], n_sessions: int) -> NDArray[np.bool_]:
    """Where a session is in one of the windows, (T,)."""
    inside = np.zeros(n_sessions, dtype=np.bool_)
    for first, last in windows:
        inside[first : last + 1] = True
    return inside


def spliced(panel: MarketPanel, windows: Sequence[Window]) -> MarketPanel:
    """The sessions of some windows alone, one after the other as if nothing had been between."""
    inside = within(windows, len(panel.sessions))
    overnight = panel.overnight_returns
    return replace(
        panel,
        sessions=panel.sessions[inside],
        close_returns=panel.close_returns[inside],
        overnight_returns=None if overnight is None else overnight[inside],
        tradable=panel.tradable[inside],
        delisted=panel.delisted[inside],
        eligible=panel.eligible[inside],
        features=panel.features[inside],
    )


def build_panel(
    returns: pl.DataFrame,
    features: pl.DataFrame,
    symbols: Sequence[str] | None = None,
    max_gap: int = 5,
    snapshot_ids: Mapping[str, int] | None = None,
) -> MarketPanel:
    """The panel of one source, from its first session with an eligible symbol on; no array holds a NaN.

    A session is every session of the exchange from the first to the last bar. Where a name has no price it
    is not tradable and its returns are 0; after more than `max_gap` such sessions it counts as delisted,
    which uses no later knowledge. Where a bar has no open, its first known price is its close, and so its
    overnight return is its close return. Where the source has no volume, the features of volume are left out.

    Args:
        returns: rows of `gold.returns` of one source.
        features: rows of `gold.features` for the same bars.
        symbols: the names to take; None takes all.
        max_gap: longest stretch of sessions a listed name may go without a price and come back.
        snapshot_ids: which snapshot of each table the rows are from.

    Raises:
        ValueError: if a symbol is unknown, a name comes back after a longer gap, a name lacks a feature that
            the others have, or no name is ever eligible.
    """
    kept = _usable_features(returns, features)
    rows = _bars_of(returns.join(features.drop("year"), on=list(_KEYS[:3]), how="left"), symbols)
    history = price_history(rows)
    _refuse_missing_feature(rows, kept)
    absent = _sessions_without_price(history)
    _refuse_long_gap(history, absent, max_gap)
    arrays = bar_arrays(rows, [*kept, "close_return", "overnight_return"], history.sessions, history.symbols)
    known = np.stack([arrays[name] for name in kept], axis=2)
    tradable = history.traded
    eligible = tradable & ~np.isnan(known).any(axis=2)
    start = _first_eligible(eligible, rows, kept)
    close_returns = arrays["close_return"]
    has_opens = rows["overnight_return"].null_count() < len(rows)
    overnight = arrays["overnight_return"] if has_opens else None
    if overnight is not None:
        overnight = np.nan_to_num(np.where(np.isnan(overnight), close_returns, overnight)[start:])
    return MarketPanel(
        source=str(rows["source"][0]),
        sessions=history.sessions[start:],
        symbols=history.symbols,
        close_returns=np.nan_to_num(close_returns[start:]),
        overnight_returns=overnight,
        tradable=tradable[start:],
        delisted=(absent > max_gap)[start:],
        eligible=eligible[start:],
        features=np.where(eligible[:, :, None], known, 0.0)[start:],
        feature_names=tuple(kept),
        snapshot_ids=dict(snapshot_ids or {}),
    )


def panel_digest(panel: MarketPanel) -> str:
    """SHA-256 of the panel's content, as 64 hexadecimal digits; its snapshot ids are not part of it."""
    state = hashlib.sha256(repr((panel.source, panel.symbols, panel.feature_names)).encode())
    arrays = (
        panel.sessions.astype("datetime64[D]").astype(np.int64),
        panel.close_returns,
        panel.overnight_returns,
        panel.tradable,
        panel.delisted,
        panel.eligible,
        panel.features,
    )
    for array in arrays:
        state.update(b"none" if array is None else repr((array.dtype.str, array.shape)).encode())
        state.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def panel_row(panel: MarketPanel, built_at: dt.datetime) -> pl.DataFrame:
    """The panel's row of `gold.market_panel`."""
    ids = panel.snapshot_ids
    row = {
        "source": panel.source,
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
        "built_at": built_at,
    }
    return pl.DataFrame([row], schema=PANELS)


def _usable_features(returns: pl.DataFrame, features: pl.DataFrame) -> list[str]:
    has_volume = returns["volume"].null_count() < len(returns)
    return [name for name in features.columns if name not in _KEYS and (has_volume or "volume" not in name)]


def _bars_of(rows: pl.DataFrame, symbols: Sequence[str] | None) -> pl.DataFrame:
    known = set(rows["symbol"])
    strangers = sorted(set(symbols or ()) - known)
    if strangers or not known:
        missing, found = ", ".join(strangers) or "any symbol", ", ".join(sorted(known)) or "none"
        raise ValueError(f"the market has no bars of {missing}; it has: {found}")
    return rows if symbols is None else rows.filter(pl.col("symbol").is_in(sorted(set(symbols))))


def _refuse_missing_feature(rows: pl.DataFrame, names: Sequence[str]) -> None:
    """A name that has every feature but one, never known, would stay out of every portfolio without a word."""
    known = rows.group_by("symbol").agg(pl.col(name).is_not_null().any() for name in names).sort("symbol")
    # Where nothing needs more history than the name has, a feature that stays unknown is missing data.
    n_known = pl.sum_horizontal(names)
    partial = known.filter((n_known == len(names) - 1) & (n_known > 0))
    if partial.height:
        symbol, *flags = partial.row(0)
        missing = names[flags.index(False)]
        raise ValueError(
            f"{symbol} never has the feature {missing!r}, which other symbols have: deliver the data it needs "
            f"(a volume, for instance), or leave {symbol} out by naming the symbols to use"
        )


def _sessions_without_price(history: PriceHistory) -> NDArray[np.int64]:
    """Sessions since the last price, (T, N): 0 where there is one, and before a name is listed."""
    index = np.arange(len(history.sessions))[:, None]
    last = carried_forward(np.where(history.traded, index, np.nan))
    return np.nan_to_num(index - last).astype(np.int64)


def _refuse_long_gap(history: PriceHistory, absent: NDArray[np.int64], max_gap: int) -> None:
    resumed = history.traded[1:] & (absent[:-1] > max_gap)
    if resumed.any():
        row, column = np.argwhere(resumed)[0]
        length = int(absent[row, column])
        days = history.sessions
        raise ValueError(
            f"{history.symbols[column]} has no bar on {length} sessions from {days[row - length + 1]} to {days[row]}, "
            f"and max_gap allows {max_gap}: deliver the missing bars, raise max_gap, or leave the symbol out"
        )


def _first_eligible(eligible: NDArray[np.bool_], rows: pl.DataFrame, names: Sequence[str]) -> int:
    found = eligible.any(axis=1)
    if not found.any():
        never = [name for name in names if rows[name].null_count() == len(rows)]
        raise ValueError(
            f"no symbol of {rows['source'][0]!r} ever has all features known at once (never known: "
            f"{', '.join(never) or 'none'}): deliver a longer history, 253 bars for momentum_12_1"
        )
    return int(np.argmax(found))
