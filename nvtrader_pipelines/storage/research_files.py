"""Files of search sessions: settings, an append-only journal, returns and a lock."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.errors import MAX_CANDIDATES, NotFoundError, StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.locks import is_locked, try_lock
from nvtrader_pipelines.storage.read_sources import note_read, read_state
from nvtrader_pipelines.storage.shared_files import SharedFiles

NO_SESSION = "a search session must have been started, but there is none; start one with `nvtrader research start`"
MIN_SECONDS = 1.0  # between two times at which the object store gets the journal
LOCK_PAUSES = (0.0, 0.05, 0.05, 0.1)  # seconds before each try to lock a session, which `is_running` briefly locks


@dataclass(frozen=True)
class SessionFolder:
    """Folder of a search session."""

    path: Path
    home: Home

    @classmethod
    def of(cls, home: Home, session_id: str) -> "SessionFolder":
        """Folder of a session of a home, which need not exist."""
        return cls(home.research_sessions / session_id, home)

    @property
    def session_id(self) -> str:
        """Id of the session: the name of the folder."""
        return self.path.name

    @property
    def settings(self) -> Path:
        """Settings of the session, as JSON."""
        return self.path / "session.json"

    @property
    def journal(self) -> Path:
        """Journal, a JSON line per event."""
        return self.path / "journal.jsonl"

    @property
    def report(self) -> Path:
        """Report as Markdown."""
        return self.path / "report.md"

    @property
    def picture(self) -> Path:
        """Sharpe ratios over trials."""
        return self.path / "sharpe.png"

    @property
    def stop_request(self) -> Path:
        """File that ends the session after its current trials."""
        return self.path / "stop"

    def read_lines(self) -> list[bytes]:
        """Read the complete lines of the journal; none without a file."""
        note_read(self.journal)
        try:
            content = self.journal.read_bytes()
        except FileNotFoundError:
            return []
        return content.split(b"\n")[:-1]

    def cut_torn_line(self) -> None:
        """Cut an incomplete last line off the journal, left by a process that was killed."""
        try:
            content = self.journal.read_bytes()
        except FileNotFoundError:
            return
        torn = len(content) - (content.rfind(b"\n") + 1)
        if torn:
            with self.journal.open("r+b") as file:
                file.truncate(len(content) - torn)
                os.fsync(file.fileno())

    def append(self, line: str) -> None:
        """Append a line to the journal and sync it.

        Raises:
            OSError: if it cannot be written, such as on a full disk; a part of it that was is then a torn line.
        """
        with self.journal.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._shared.try_push(self.path, min_seconds=MIN_SECONDS)

    def write_returns(self, name: str, returns: NDArray[np.float64]) -> None:
        """Write net returns (n_seeds, n) of a configuration."""
        buffer = io.BytesIO()
        np.save(buffer, returns, allow_pickle=False)
        write_atomically(self._returns(name), buffer.getvalue())

    def read_returns(self, name: str) -> NDArray[np.float64]:
        """Read net returns (n_seeds, n) of a configuration.

        Raises:
            StorageError: if there are none.
        """
        note_read(self._returns(name))
        try:
            return np.load(self._returns(name), allow_pickle=False)
        except (FileNotFoundError, ValueError, EOFError) as error:
            raise StorageError(
                f"the returns {name} of session {self.session_id} must be in its folder, but cannot be read; restore "
                "the folder from a backup, or start another session"
            ) from error

    def find_returns(self, name: str) -> NDArray[np.float64] | None:
        """Read net returns as `read_returns`; None without the file."""
        note_read(self._returns(name))
        return self.read_returns(name) if self._returns(name).exists() else None

    def _returns(self, name: str) -> Path:
        return self.path / "returns" / f"{name}.npy"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the session, which one process at a time may run.

        Raises:
            StorageError: if another process holds it, or the object store has another journal or cannot be reached.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with try_lock(*self._lock, LOCK_PAUSES) as require_held:
            if require_held is None:
                raise StorageError(
                    f"session {self.session_id} runs in another process; `nvtrader research status` shows it, and "
                    f"`nvtrader research stop {self.session_id}` ends it after its current trials"
                )
            self._shared.pull(self.path)
            self._shared.pull(self.journal)  # by itself, so that lines are compared even where sizes are equal
            try:
                yield
            finally:
                self._shared.try_push(self.path)

    @cached_property
    def _shared(self) -> SharedFiles:
        return SharedFiles(self.home)

    @property
    def is_running(self) -> bool:
        """Whether a process holds the session; no file changes when it is killed."""
        return read_state(is_locked, *self._lock)

    @property
    def _lock(self) -> tuple[Home, str, Path]:
        return self.home, f"session {self.session_id}", self.path / ".lock"


def _session_folders(path: Path, home: Home) -> list[SessionFolder]:
    return [SessionFolder(settings.parent, home) for settings in sorted(path.glob("*/session.json"))]


class SearchSessions:
    """Search sessions of a home, each in a folder."""

    def __init__(self, home: Home) -> None:
        self._home, self._shared = home, SharedFiles(home)

    def folders(self) -> list[SessionFolder]:
        """Folders of all sessions, oldest first."""
        self._shared.try_pull(self._home.research_sessions)
        return read_state(_session_folders, self._home.research_sessions, self._home)

    def find(self, text: str | None = None) -> SessionFolder:
        """Find a session by the beginning of its id; by default the running one, else the newest.

        Raises:
            NotFoundError: if no session or several sessions match.
        """
        folders = self.folders()
        if not folders:
            raise NotFoundError(NO_SESSION)
        if text is None:
            return next((folder for folder in reversed(folders) if folder.is_running), folders[-1])
        ids = [folder.session_id for folder in folders]
        matching = [folder for folder in folders if text and folder.session_id.startswith(text)]
        exact = [folder for folder in matching if folder.session_id == text]
        if len(matching) == 1 or exact:
            return (exact or matching)[0]
        if not matching:
            near = suggest(text, [name[: len(text)] for name in ids]) or ";"
            raise NotFoundError(
                f"no session's id begins with {text!r}{near} list them with `nvtrader research sessions`"
            )
        shown = ", ".join(folder.session_id for folder in matching[-MAX_CANDIDATES:])  # the newest
        raise NotFoundError(f"{len(matching)} sessions begin with {text!r} ({shown}); give more of the id")
