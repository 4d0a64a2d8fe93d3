"""Order books: land files of events, and read a landed book."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.files import escape_name
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ORDER_BOOKS
from nvtrader_pipelines.worlds.book_events import EventError, book_history, read_events
from nvtrader_pipelines.worlds.book_history import BookHistory
from nvtrader_pipelines.worlds.book_tables import book_rows, history_of


class OrderBookDocument(Document):
    """Landed order book."""

    book: str
    n_events: int
    n_times: int
    step_seconds: float  # between two times without a gap
    first: datetime
    last: datetime
    n_gaps: int  # longer times without events or without a side
    average_spread: float


def land_book(store: Store, files: Sequence[Path], book: str, step_seconds: float) -> OrderBookDocument:
    """Land files of events as one book, in the order of their names; a book of the name is replaced as a whole.

    Raises:
        StorageError: if a file cannot be read or has another layout, or an event is not valid; nothing is landed then.
    """
    files, parts = sorted(files, key=lambda file: file.name), []
    for file in files:
        try:
            parts.append(read_events(file.read_bytes()))
        except OSError as error:
            raise StorageError(
                f"{escape_name(file)} must be readable, but: {error.strerror}; correct its path"
            ) from error
        except ValueError as error:
            raise StorageError(f"{escape_name(file)}: {error}") from error
    events = np.concatenate(parts)
    try:
        history = book_history(book, events, 1000 * round(1e6 * step_seconds))  # tables keep microseconds
    except EventError as error:
        ends = np.cumsum([len(part) for part in parts])
        place = int(np.searchsorted(ends, error.row, "right"))
        row = error.row - int(ends[place]) + len(parts[place])
        raise StorageError(f"{escape_name(files[place])}: row {row}: {error.problem}; correct the file") from error
    except ValueError as error:
        raise StorageError(f"book {book}: {error}") from error
    store.tables.replace(ORDER_BOOKS, book_rows(history), {"book": [book]})
    return OrderBookDocument(
        book=book,
        n_events=len(events),
        n_times=len(history.sessions),
        step_seconds=history.step / np.timedelta64(1, "s"),
        first=_time(history, 0),
        last=_time(history, -1),
        n_gaps=len(history.stretches((0, len(history.sessions) - 1))) - 1,
        average_spread=float((history.asks[:, 0] - history.bids[:, 0]).mean()),
    )


def _time(history: BookHistory, place: int) -> datetime:
    return history.sessions[place].astype("datetime64[us]").item()


def read_book(store: Store, book: str) -> BookHistory:
    """Read a landed book.

    Raises:
        NotFoundError: if there is no book of the name.
    """
    snapshot_id = store.tables.snapshot_id(ORDER_BOOKS)
    rows = store.tables.read(ORDER_BOOKS, {"book": [book]}, snapshot_id=snapshot_id)
    if rows.is_empty() or snapshot_id is None:
        names = store.tables.read(ORDER_BOOKS, columns=["book"])["book"].unique().sort().to_list()
        landed = f"those landed are {', '.join(names)}{suggest(book, names)}" if names else "none is landed"
        raise NotFoundError(f"there is no order book {book!r}; {landed}; `nvtrader worlds land` lands files of events")
    return history_of(rows, {ORDER_BOOKS.name: snapshot_id})
