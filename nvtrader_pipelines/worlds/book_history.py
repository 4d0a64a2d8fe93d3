"""History of an order book: the best levels and the trades at regular times."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.market.panel import Window

N_LEVELS = 5  # of each side that are kept
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BookHistory:
    """Order book at T times; a level that is not there has size 0 and the price of the one before."""

    source: str  # name of the book
    sessions: NDArray[np.datetime64]  # (T,) times in ns, rising
    bids: FloatArray  # (T, N_LEVELS) prices, the best first
    bid_sizes: FloatArray  # (T, N_LEVELS)
    asks: FloatArray  # (T, N_LEVELS)
    ask_sizes: FloatArray  # (T, N_LEVELS)
    bought: FloatArray  # (T,) traded by buyers since the time before
    sold: FloatArray  # (T,) traded by sellers
    step: np.timedelta64  # between two times without a gap
    snapshot_ids: Mapping[str, int] = field(default_factory=dict)  # of the table that it was read from

    def until(self, t: int) -> "BookHistory":
        """Cut the history after time `t`; the arrays are views."""
        return replace(self, **{name: getattr(self, name)[: t + 1] for name in _ARRAYS})

    def stretches(self, window: Window) -> list[Window]:
        """First and last position of every stretch without a gap in a window."""
        first, last = window
        ends = first + np.flatnonzero(np.diff(self.sessions[first : last + 1]) > self.step)
        return list(zip([first, *(ends + 1).tolist()], [*ends.tolist(), last], strict=True))

    @property
    def digest(self) -> str:
        """SHA-256 of the content, as 64 hexadecimal digits."""
        state = sha256(repr((self.source, self.bids.shape)).encode())
        for name in _ARRAYS:
            state.update(np.ascontiguousarray(getattr(self, name)).view(np.uint8).data)
        return state.hexdigest()


_ARRAYS = ("sessions", "bids", "bid_sizes", "asks", "ask_sizes", "bought", "sold")
