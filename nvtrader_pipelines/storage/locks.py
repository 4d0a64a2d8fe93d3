"""Locks of a home between processes: advisory locks in the Postgres of its settings, else locked files."""

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nvtrader_pipelines.storage.errors import UnavailableError
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home, lock_path
from nvtrader_pipelines.storage.settings import database_url

if TYPE_CHECKING:  # slow to import, and a home without the setting needs none of it
    import sqlalchemy as sa

RequireHeld = Callable[[], None]  # raises an UnavailableError once the lock is lost


@contextmanager
def home_lock(home: Home, name: str) -> Iterator[None]:
    """Hold an exclusive lock between processes, in Postgres also between machines; it ends with its process.

    Raises:
        UnavailableError: if Postgres cannot be reached, or at the end if the connection was lost meanwhile.
        OSError: if the lock file cannot be opened.
    """
    if (url := database_url(home)) is None:
        with file_lock(lock_path(home, name)):
            yield
        return
    with _connected(url) as connection, _taken(connection, url, name, "pg_advisory_lock"):
        yield


@contextmanager
def try_lock(home: Home, name: str, path: Path, pauses: Sequence[float] = (0.0,)) -> Iterator[RequireHeld | None]:
    """Hold a lock as `home_lock` does, or yield None if another process holds it after each of the pauses in seconds.

    Args:
        home: home with the settings.
        name: name of the lock in Postgres.
        path: file of the lock without Postgres.
        pauses: seconds before each try.
    """
    if (url := database_url(home)) is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            yield (lambda: None) if any(_lock_after(pause, file.fileno()) for pause in pauses) else None
        return
    with _connected(url) as connection:
        for pause in pauses:
            time.sleep(pause)
            with _taken(connection, url, name, "pg_try_advisory_lock") as require_held:
                if require_held is not None:
                    yield require_held
                    return
    yield None


def is_locked(home: Home, name: str, path: Path) -> bool:
    """Whether a process holds a lock of `try_lock`, which this briefly shares."""
    if url := database_url(home):
        with _connected(url) as connection:  # the lock ends with its statement, since that is the transaction
            return not _call(connection, url, "pg_try_advisory_xact_lock_shared", name)
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock_after(pause: float, handle: int) -> bool:
    """Lock a file after a pause, and return whether no other process holds it."""
    time.sleep(pause)
    with suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def _connected(url: "sa.URL") -> Iterator["sa.Connection"]:
    """Borrow a connection outside of transactions, which is closed if it may still hold a lock."""
    from sqlalchemy.exc import SQLAlchemyError

    from nvtrader_pipelines.storage.postgres import failure, pool

    try:
        connection = pool(url).connect().execution_options(isolation_level="AUTOCOMMIT")
    except SQLAlchemyError as error:
        raise failure("lock", url, error) from None
    with connection:
        try:
            yield connection
        except BaseException:
            connection.invalidate()
            raise


@contextmanager
def _taken(connection: "sa.Connection", url: "sa.URL", name: str, function: str) -> Iterator[RequireHeld | None]:
    """Take a lock and release it at the end, unless that fails: then the connection is closed."""
    if _call(connection, url, function, name) is False:
        yield None
        return
    try:
        yield lambda: _require_session(connection, url)
    except BaseException:
        with suppress(UnavailableError):
            _call(connection, url, "pg_advisory_unlock", name)
        raise
    if not _call(connection, url, "pg_advisory_unlock", name):
        raise UnavailableError(f"the lock {name} was lost with its connection to Postgres; do the last step again")


def _require_session(connection: "sa.Connection", url: "sa.URL") -> None:
    _call(connection, url, "pg_backend_pid")


def _call(connection: "sa.Connection", url: "sa.URL", function: str, *names: str) -> object:
    """Call a function of Postgres with the keys of locks; the session of a lost connection is not replaced."""
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

    from nvtrader_pipelines.storage.postgres import failure

    try:
        return connection.scalar(sa.select(getattr(sa.func, function)(*map(_key, names))))
    except SQLAlchemyError as error:
        raise failure("lock", url, error) from None


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"nvtrader:{name}".encode()).digest()[:8], "big", signed=True)
