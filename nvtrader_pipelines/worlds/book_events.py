"""Events of an order book in the layout of hftbacktest, and the history that they make."""

import io
import zipfile
import zlib
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.worlds.book_history import N_LEVELS, BookHistory

EVENT = np.dtype(
    [
        ("ev", "u8"),  # flags and kind
        ("exch_ts", "i8"),  # ns since 1970 at the exchange
        ("local_ts", "i8"),  # ns since 1970 at the receiver
        ("px", "f8"),
        ("qty", "f8"),  # size of the level after the change, or of the trade
        ("order_id", "u8"),
        ("ival", "i8"),
        ("fval", "f8"),
    ]
)
EXCHANGE, LOCAL, BUY, SELL = 1 << 31, 1 << 30, 1 << 29, 1 << 28  # flags: who sees it, and the side
TRADE, CLEAR = 2, 3  # kinds; others, from 1 to 5, set the size of a level
_KIND = 0xFF
MAX_GAP = 60_000_000_000  # ns without an event after which the history has a gap
MAX_TIMES = 10_000_000  # of a history
LAST_TIME = np.datetime64("2200-01-01", "ns").astype(np.int64)
_BROKEN = (  # what NumPy raises for files of other kinds, and damaged ones
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, MemoryError, SyntaxError, TokenError),
    *(zipfile.BadZipFile, zlib.error),
)


class EventError(ValueError):
    """Row of events that is not valid."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(f"row {row}: {problem}; correct the file")
        self.row, self.problem = row, problem


def event_flags(kinds: NDArray[np.int64], sides: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return kinds with the flags of their sides: 1 buys, -1 sells, 0 both."""
    return kinds | np.where(sides > 0, BUY, 0) | np.where(sides < 0, SELL, 0)


def read_events(content: bytes) -> NDArray[np.void]:
    """Read the events of an npz file.

    Raises:
        ValueError: if it is no npz file, or its array `data` has another layout.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            events = file["data"]
    except _BROKEN as error:
        raise ValueError(f"events must be a file .npz with the array `data`, but cannot be read: {error}") from error
    if not isinstance(events, np.ndarray) or events.ndim != 1 or not len(events) or not _is_layout(events.dtype):
        raise ValueError(f"`data` must be rows of the columns {EVENT.descr}, but has another layout or no rows")
    return events.astype(EVENT)


def _is_layout(dtype: np.dtype[Any]) -> bool:
    """Whether columns have the names of the layout, and numbers of its kinds."""
    kinds = {"u": "ui", "i": "ui", "f": "fui"}
    return dtype.names == EVENT.names and all(dtype[name].kind in kinds[EVENT[name].kind] for name in EVENT.names or ())


def book_history(name: str, events: NDArray[np.void], step_ns: int) -> BookHistory:
    """Book at every step, after the events received by then; more than a minute without one is a gap.

    Args:
        name: of the book.
        events: rows of `EVENT` as received; rows that only the exchange saw are left out.
        step_ns: nanoseconds between two times, which are multiples of it.

    Raises:
        EventError: if a row is not understood or not valid, a clock goes back, or the book is crossed.
        ValueError: if the book never has two sides, or there are too many times.
    """
    from nvtrader_pipelines.worlds.book_loops import replay  # imports numba

    rows = np.flatnonzero(events["ev"] & LOCAL)
    received = events[rows]
    _require_rows(events)
    sides = np.where(received["ev"] & BUY, 1.0, np.where(received["ev"] & SELL, -1.0, 0.0))
    ticks = -(-received["local_ts"] // step_ns)  # of the first time that sees it
    is_last = np.append(ticks[1:] > ticks[:-1], True)
    n_shown = is_last.sum()
    levels, trades = np.zeros((n_shown, 4, N_LEVELS)), np.zeros((n_shown, 2))
    kinds = (received["ev"] & _KIND).astype(np.int64)
    crossed = replay(kinds, sides, received, is_last, levels, trades)
    if crossed >= 0:
        raise EventError(int(rows[crossed]), "the best bid must be below the best ask, but the book is crossed here")
    ticks = ticks[is_last]
    waits = np.append(np.diff(ticks), 1)
    repeats = np.where(waits > max(1, MAX_GAP // step_ns), 1, waits)
    repeats[(levels[:, 1, 0] == 0.0) | (levels[:, 3, 0] == 0.0)] = 0
    if not repeats.any():
        raise ValueError("the book must have bids and asks at some time, but has not; land a file with a snapshot")
    if repeats.sum() > MAX_TIMES:
        raise ValueError(
            f"a book must have {MAX_TIMES:,} times at most, but has {repeats.sum():,}; choose a longer step"
        )
    place = np.repeat(np.arange(n_shown), repeats)
    age = np.arange(len(place)) - np.repeat(np.cumsum(repeats) - repeats, repeats)  # steps since the last event
    bids, bid_sizes, asks, ask_sizes = levels[place].transpose(1, 0, 2)
    bought, sold = np.where(age[:, None] == 0, trades[place], 0.0).T
    times = ((ticks[place] + age) * step_ns).astype("datetime64[ns]")
    step = np.timedelta64(step_ns, "ns")
    return BookHistory(name, times, bids, bid_sizes, asks, ask_sizes, bought, sold, step)


def _require_rows(events: NDArray[np.void]) -> None:
    """Raise for the first row that is not valid or goes back in time.

    Raises:
        EventError: with the number of the row, from 0.
    """
    flags, kind = events["ev"], events["ev"] & _KIND
    buys, sells = (flags & BUY) > 0, (flags & SELL) > 0
    unknown = ~np.isin(kind, range(1, 6)) | ((flags & ~np.uint64(_ALL)) > 0)
    priced = kind != CLEAR
    faults = {
        "ev must be a change, trade, clearing, snapshot or best price (1 to 5) with flags of hftbacktest": unknown,
        "ev must have the flag of one side, buy or sell": (buys & sells) | (~buys & ~sells & priced & (kind != TRADE)),
        "px must be above 0": priced & ~(np.isfinite(events["px"]) & (events["px"] > 0.0)),
        "qty must be 0 or more": priced & ~(np.isfinite(events["qty"]) & (events["qty"] >= 0.0)),
        "local_ts must be of the years 1970 to 2199": (events["local_ts"] < 0) | (events["local_ts"] >= LAST_TIME),
        "local_ts must not be before exch_ts": events["local_ts"] < events["exch_ts"],
    }
    for clock, flag in {"local_ts": LOCAL, "exch_ts": EXCHANGE}.items():
        seen = np.flatnonzero(flags & flag)
        back = np.zeros(len(events), np.bool_)
        back[seen[1:]] = np.diff(events[clock][seen]) < 0
        faults[f"{clock} must not go back"] = back
    for rule, wrong in faults.items():
        if wrong.any():
            row = int(wrong.argmax())
            raise EventError(row, f"{rule}, but the row is {events[row].item()}")
    if not (flags & LOCAL).any():
        raise ValueError("rows must have the flag of the receiver (1 << 30), but none has it; correct the file")


_ALL = EXCHANGE | LOCAL | BUY | SELL | _KIND
