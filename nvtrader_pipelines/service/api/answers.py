"""Answers kept until a file that they come from changes, however many clients ask."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import ledger_url

Stamp = tuple[tuple[str, int, int], ...]
JSON = TypeAdapter(Any)
MAX_BYTES = 64 << 20  # of all answers
MAX_KEPT = 500  # answers; the names of things are part of their keys


def answer_with(document: object) -> Response:
    """Answer with a document, or rows, as JSON."""
    return Response(JSON.dump_json(document), media_type="application/json")


class Answers:
    """Answers of one home by name and arguments, as bytes of JSON."""

    def __init__(self, home: Home) -> None:
        self._lock = Lock()
        self._kept: dict[tuple[object, ...], tuple[Stamp, bytes]] = {}
        self._locks: dict[tuple[object, ...], Lock] = {}
        url = ledger_url(home)  # elsewhere no file of the home tells of changes
        self.is_local = url.get_backend_name() == "sqlite" and Path(url.database or "") == home.ledger

    def get(self, key: tuple[object, ...], sources: Sequence[Path], read: Callable[[], object]) -> Response:
        """Answer with what `read`, a document or rows, returns as JSON; kept as by `keep`."""
        return Response(self.keep(key, sources, lambda: JSON.dump_json(read())), media_type="application/json")

    def keep(self, key: tuple[object, ...], sources: Sequence[Path], read: Callable[[], bytes]) -> bytes:
        """Return what `read` returns, read again if a source changed; others wait for it.

        Args:
            key: name of the answer and its arguments.
            sources: files, and folders of which all files count, that the answer comes from.
            read: returns the content.
        """
        with self._lock:
            if len(self._locks) > MAX_KEPT or sum(len(kept[1]) for kept in self._kept.values()) > MAX_BYTES:
                self._locks.clear()
                self._kept.clear()
            lock = self._locks.setdefault(key, Lock())
        with lock:
            stamp = stamp_of(sources)  # before it is read, so that a change meanwhile is read the next time
            kept = self._kept.get(key)
            if not self.is_local or kept is None or kept[0] != stamp:
                kept = stamp, read()
                self._kept[key] = kept
        return kept[1]


def stamp_of(sources: Sequence[Path]) -> Stamp:
    """Name, time and size of files and of all files below folders; SQLite writes `-wal` first."""
    return tuple(entry for source in sources for entry in _stamps(source))


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    try:
        with os.scandir(path) as entries:
            return [stamp for entry in sorted(entries, key=lambda e: e.name) for stamp in _stamps(Path(entry.path))]
    except (NotADirectoryError, FileNotFoundError):
        pass
    stamps = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            facts = file.stat()
        except FileNotFoundError:
            continue
        stamps.append((str(file), facts.st_mtime_ns, facts.st_size))
    return stamps
