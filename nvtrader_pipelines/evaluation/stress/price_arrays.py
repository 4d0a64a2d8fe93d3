"""Prices of one source as arrays that a shock may change, and back to `gold.returns`."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.market.history import bar_arrays, forward_fill, lag, price_history
from nvtrader_pipelines.market.tables import RETURNS

FloatArray = NDArray[np.float64]
_ARRAYS = ("opens", "highs", "lows", "closes", "volumes")


@dataclass(frozen=True, eq=False)
class PriceArrays:
    """Adjusted prices and volumes on every session from the first to the last bar; NaN where unknown."""

    source: str
    sessions: NDArray[np.datetime64]  # (T,) days, ascending
    symbols: tuple[str, ...]  # N names, sorted
    opens: FloatArray  # (T, N)
    highs: FloatArray  # (T, N)
    lows: FloatArray  # (T, N)
    closes: FloatArray  # (T, N); NaN where there is no bar
    volumes: FloatArray  # (T, N)
    calendar: TradingCalendar

    @classmethod
    def of(cls, returns: pl.DataFrame, calendar: TradingCalendar) -> Self:
        """Read prices from rows of `gold.returns` of one source.

        Raises:
            ValueError: if there are no rows, or rows of several sources.
        """
        history = price_history(returns, calendar)
        opens = bar_arrays(returns, ["adj_open"], history.sessions, history.symbols)["adj_open"]
        arrays = (opens, history.highs, history.lows, history.closes, history.volumes)
        return cls(str(returns["source"][0]), history.sessions, history.symbols, *arrays, calendar)

    @property
    def has_price(self) -> NDArray[np.bool_]:
        """Whether a name has a bar in a session, (T, N)."""
        return ~np.isnan(self.closes)

    def returns(self) -> tuple[FloatArray, ...]:
        """Returns from the last known close to close, open, high and low, (T, N) each; NaN where unknown."""
        before = lag(forward_fill(self.closes), 1)
        return tuple(prices / before - 1.0 for prices in (self.closes, self.opens, self.highs, self.lows))

    def until(self, last: int) -> Self:
        """PriceArrays known at the close of session `last`."""
        return self._cut(slice(last + 1))

    def since(self, first: int) -> Self:
        """PriceArrays from session `first` on."""
        return self._cut(slice(first, None))

    def _cut(self, part: slice) -> Self:
        arrays = {name: getattr(self, name)[part] for name in _ARRAYS}
        return replace(self, sessions=self.sessions[part], **arrays)

    def scaled(self, start: int, opens: FloatArray, closes: FloatArray) -> Self:
        """Multiply opens and closes by factors (n, N) from session `start` on; the last factors stay in force.

        The high keeps its ratio to the higher of open and close, the low to the lower. A factor of exactly 1 leaves the
        price bit-identical.
        """
        rest = len(self.sessions) - start - len(closes)
        lasting = np.repeat(closes[-1:], rest, axis=0)
        before = self.opens[start:], self.closes[start:]
        after = before[0] * np.concatenate([opens, lasting]), before[1] * np.concatenate([closes, lasting])
        highs = self.highs[start:] * (np.fmax(*after) / np.fmax(*before))
        lows = self.lows[start:] * (np.fmin(*after) / np.fmin(*before))
        return self.with_from(start, opens=after[0], highs=highs, lows=lows, closes=after[1])

    def with_from(self, start: int, **arrays: FloatArray) -> Self:
        """Replace arrays from session `start` on."""
        changed = {name: np.concatenate([getattr(self, name)[:start], values]) for name, values in arrays.items()}
        return replace(self, **changed)

    def rows(self) -> pl.DataFrame:
        """Rows of `gold.returns`, in session order."""
        bars = np.nonzero(self.has_price)
        sessions = pl.Series("session", self.sessions[bars[0]].astype("datetime64[D]"))
        close_return, overnight_return, *_ = self.returns()
        index = np.where(self.has_price, np.arange(len(self.sessions), dtype=np.float64)[:, None], np.nan)
        span = index - lag(forward_fill(index), 1)
        frame = pl.DataFrame(
            {
                "source": pl.repeat(self.source, len(sessions), eager=True),
                "symbol": pl.Series(self.symbols)[bars[1]],
                "session": sessions,
                "year": sessions.dt.year(),
                "adj_open": self.opens[bars],
                "adj_high": self.highs[bars],
                "adj_low": self.lows[bars],
                "adj_close": self.closes[bars],
                "close_return": close_return[bars],
                "overnight_return": overnight_return[bars],
                "span": span[bars],
                "volume": self.volumes[bars],
            },
            nan_to_null=True,
        )
        return frame.select(pl.col(name).cast(kind) for name, kind in RETURNS.items())
