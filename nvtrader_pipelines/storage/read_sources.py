"""Sources of an answer: files, folders and other states, noted where they are read."""

import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

State = TypeVar("State")
Sources = dict[tuple[Any, ...], object]  # what a function returned before the first read, by it and its arguments
_NOTED: ContextVar[Sources | None] = ContextVar("noted", default=None)


def note_read(path: Path) -> None:
    """Note a file, or a folder with all files below; a part with a cache notes it at each access."""
    noted = _NOTED.get()
    if noted is not None and (_stamps, path) not in noted:
        noted[_stamps, path] = _stamps(path)


def read_state(read: Callable[..., State], *arguments: object) -> State:
    """Return and note what a function returns, such as the lock of a file, whose time does not change."""
    state, noted = read(*arguments), _NOTED.get()
    if noted is not None:
        noted.setdefault((read, *arguments), state)
    return state


@contextmanager
def recording() -> Iterator[Sources]:
    """Record the sources that this thread reads inside."""
    sources: Sources = {}
    token = _NOTED.set(sources)
    try:
        yield sources
    finally:
        _NOTED.reset(token)


def is_unchanged(sources: Sources) -> bool:
    """Whether there are sources, and none changed."""
    return bool(sources) and all(read(*arguments) == state for (read, *arguments), state in sources.items())


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """Name, time and size of a file or of all files below a folder; SQLite writes `-wal` first."""
    stamps = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        with suppress(FileNotFoundError, NotADirectoryError):
            facts = file.stat()
            if stat.S_ISDIR(facts.st_mode):
                stamps += [stamp for inner in sorted(file.iterdir()) for stamp in _stamps(inner)]
            else:
                stamps.append((str(file), facts.st_mtime_ns, facts.st_size))
    return stamps
