"""Files of a home in the object store, beside its tables, so that other machines read them; a copy stays in the home.

Three kinds: a file that grows, of which one copy must begin with the other; one of which the last write counts; and all
others, which are written once.
"""

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from nvtrader_pipelines.storage.errors import ConflictError, StorageError, UnavailableError
from nvtrader_pipelines.storage.files import file_lock, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.locks import home_lock
from nvtrader_pipelines.storage.object_store import (
    delete_object,
    list_objects,
    object_size,
    open_object,
    read_object,
    store_errors,
    write_object,
)
from nvtrader_pipelines.storage.settings import read_settings

SUFFIXES = {".json", ".jsonl", ".npy", ".parquet", ".yaml", ".zip"}  # not locks, checkpoints, reports and pictures
OVERLAP = 4096  # bytes of both copies that must be equal where one goes on; the audit's chain proves the rest
_LOG = logging.getLogger(__name__)


class SharedFiles:
    """Files of a home that are also in the object store; without `warehouse_uri` every method does nothing."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stamps: dict[Path, tuple[int, int]] = {}  # time and size of files when this process pushed them
        self._pushed_at = -math.inf

    @cached_property
    def uri(self) -> str | None:
        """Folder of the object store that has the same paths as the root of the home."""
        return read_settings(self._home).warehouse_uri

    @property
    def folders(self) -> list[Path]:
        """Folders and files of the home that are shared."""
        home = self._home
        logs = (home.audit / "events.jsonl", home.audit / "rebalance_decisions.jsonl")
        return [home.policies, home.research_policies, home.preference_pairs, home.research_sessions, *logs]

    @property
    def files(self) -> list[Path]:
        """All files of the home that are shared."""
        return list(self._local_files(*self.folders))

    def lock(self, path: Path) -> AbstractContextManager[None]:
        """Lock of a file that several processes append to, of all homes if it is shared and they have one Postgres."""
        return home_lock(self._home, path.name.strip(".").removesuffix(".lock")) if self.uri else file_lock(path)

    def push(self, *paths: Path) -> None:
        """Store files, and those below folders, unless the store has them.

        Raises:
            ConflictError: if another machine has written another content.
            UnavailableError: if the store cannot be reached.
        """
        for path in self._local_files(*paths) if self.uri else ():
            stamp = (path.stat().st_mtime_ns, path.stat().st_size)
            if self._stamps.get(path) == stamp:
                continue
            if path.suffix == ".jsonl":
                self.extend(path, b"")
            elif self._is_replaced(path) or path.suffix == ".npy":
                write_object(self._uri_of(path), path.read_bytes())
            else:
                self._write_once(path)
            self._stamps[path] = stamp

    def try_push(self, *paths: Path, min_seconds: float = 0.0) -> None:
        """Store files as `push`, at most every so many seconds; a failure is logged, since a later push repairs it."""
        if self.uri and time.monotonic() - self._pushed_at >= min_seconds:
            self._pushed_at = time.monotonic()
            try:
                self.push(*paths)
            except StorageError as error:
                _LOG.warning("other machines do not see the newest files yet: %s", error)

    def extend(self, path: Path, content: bytes) -> None:
        """Store the complete lines of a growing file, with lines that the caller appends to it afterwards.

        Raises:
            ConflictError: if the store has other lines.
            UnavailableError: if the store cannot be reached.
        """
        if self.uri:
            lines = path.read_bytes() if path.exists() else b""
            lines = lines if content else lines[: lines.rfind(b"\n") + 1]  # a line that is being written comes later
            if self._lines_beyond(path, lines):
                raise self._conflict(path)
            write_object(self._uri_of(path), lines + content)

    def pull(self, path: Path) -> None:
        """Bring a file, or the files below a folder, up to the store's; what the store lacks stays.

        Raises:
            ConflictError: if a growing file has lines that the store lacks, and the store has others.
            StorageError: if the name of an object leads out of the home.
            UnavailableError: if the store cannot be reached.
        """
        if not self.uri:
            return
        if path.suffix in SUFFIXES:
            self._pull_file(path)
            return
        for uri, info in sorted(list_objects(self._uri_of(path)).items()):  # a manifest after its policies
            file = self._path_of(uri)
            is_equal = file.suffix == ".jsonl" and file.exists() and file.stat().st_size == info.size
            if file.suffix in SUFFIXES and not is_equal:
                self._pull_file(file)

    def try_pull(self, path: Path) -> None:
        """Bring a file or folder up to the store's; if that is not possible, the local copy serves, with a warning."""
        try:
            self.pull(path)
        except UnavailableError as error:
            if not path.exists():
                raise
            _LOG.warning("%s may be older than on other machines: %s", path, error)

    def delete(self, path: Path) -> None:
        """Delete a file or folder in the store; copies in other homes stay.

        Raises:
            UnavailableError: if the store cannot be reached.
        """
        if self.uri:
            for uri in (self._uri_of(path), *list_objects(self._uri_of(path))):
                delete_object(uri)

    def _pull_file(self, path: Path) -> None:
        if path.suffix == ".jsonl":
            self._pull_lines(path)
        elif not path.exists() or self._is_replaced(path):
            try:
                content = read_object(self._uri_of(path))
            except FileNotFoundError:
                return
            if not path.exists() or path.read_bytes() != content:
                write_atomically(path, content)

    def _pull_lines(self, path: Path) -> None:
        lines = path.read_bytes() if path.exists() else b""
        if beyond := self._lines_beyond(path, lines):
            if not lines:
                write_atomically(path, beyond)
                return
            with path.open("r+b") as file:  # at its place: another process that pulls writes the same bytes there
                os.pwrite(file.fileno(), beyond, len(lines))
                os.fsync(file.fileno())

    def _lines_beyond(self, path: Path, lines: bytes) -> bytes:
        """Read the bytes of a growing object that follow the local ones.

        Raises:
            ConflictError: if neither copy begins with the other.
        """
        uri = self._uri_of(path)
        try:
            with store_errors(uri), open_object(uri) as file:
                begin = max(0, min(file.size(), len(lines)) - OVERLAP)
                file.seek(begin)
                content = file.read()
        except FileNotFoundError:
            return b""
        n_both = min(len(content), len(lines) - begin)
        if content[:n_both] != lines[begin : begin + n_both]:
            raise self._conflict(path)
        return content[n_both:]

    def _write_once(self, path: Path) -> None:
        uri, content = self._uri_of(path), path.read_bytes()
        size = object_size(uri)
        if size is None:
            write_object(uri, content)
        elif size != len(content) or read_object(uri) != content:
            raise self._conflict(path)

    def _conflict(self, path: Path) -> ConflictError:
        return ConflictError(
            f"{path} must be that of the object store, or begin with it, but two machines wrote it differently "
            f"({self._uri_of(path)}); compare them, then move the local file aside to take the other"
        )

    def _is_replaced(self, path: Path) -> bool:
        """Whether the last write of a file counts."""
        return path.name == "latest.json" or path.is_relative_to(self._home.research_policies)

    def _uri_of(self, path: Path) -> str:
        return f"{self.uri}/{path.relative_to(self._home.root).as_posix()}"

    def _path_of(self, uri: str) -> Path:
        name = uri.removeprefix(f"{self.uri}/")
        if os.path.normpath(name) != name or not name.startswith("data/"):
            raise StorageError(f"objects must be below {self.uri}/data, but {uri} leads elsewhere; delete it")
        return self._home.root / name

    @staticmethod
    def _local_files(*paths: Path) -> Iterator[Path]:
        for path in paths:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.suffix in SUFFIXES and not file.name.startswith((".", "torn-")) and file.is_file():
                    yield file
