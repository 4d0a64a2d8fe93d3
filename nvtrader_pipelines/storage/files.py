"""Atomic writes, also of pictures, and locks between processes."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import itertools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from nvtrader_pipelines.storage.errors import DamagedFileError, StorageError
from nvtrader_pipelines.storage.read_sources import note_read

if TYPE_CHECKING:  # matplotlib takes long to import
    from nvtrader_pipelines.figures.canvas import Picture, RenderedPicture

DATABASE_REMEDY = "see `nvtrader doctor`"
JOURNALS = ("-journal", "-wal", "-shm")  # ends of the names of a database's files
MAX_HASHED_BYTES = 256 << 20
IMMUTABLE = {"immutable": "1", "uri": "true"}  # options of SQLAlchemy for the URI of a database that does not change
PICTURE_FORMATS = (".png", ".svg")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file, sync and rename: a reader or crash sees the old or new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def append_rotated(path: Path, lines: str, max_bytes: int) -> None:
    """Append lines to a file; one that they would make too long first replaces the earlier part, `<name>.1`."""
    with file_lock(path.with_suffix(".lock")):
        if path.exists() and path.stat().st_size + len(lines.encode()) > max_bytes:
            path.replace(path.with_name(f"{path.name}.1"))
        with path.open("a+b") as file:
            file.seek(max(0, file.tell() - 1))
            is_torn = file.read() not in (b"", b"\n")  # by a process that was killed
            file.write(b"\n" * is_torn + lines.encode())


@contextlib.contextmanager
def create_aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a new file or folder, and rename it to `path` at the end.

    The caller must hold a lock: leftovers of a killed process are removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    remove_aside(temporary)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        remove_aside(temporary)
    _sync_folder(path.parent)


def remove_aside(temporary: Path) -> None:
    """Remove a temporary file or folder, and the journals of a temporary database."""
    for left in temporary.parent.glob(f"{glob.escape(temporary.name)}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def set_aside(path: Path) -> Path | None:
    """Rename a damaged file, with the journals of a database, to a free name; return that, or None without the file.

    Journals come first: SQLite would write one that is left behind into the next database of this name.
    """
    numbers = (f"-{count}" if count > 1 else "" for count in itertools.count(1))
    end = next(end for end in map(".damaged{}".format, numbers) if not path.with_name(path.name + end).exists())
    for part in JOURNALS:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + part).replace(path.with_name(path.name + part + end))
    return path.replace(path.with_name(path.name + end)) if path.exists() else None


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def open_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing SQLite database.

    Raises:
        DamagedFileError: if the file is no database.
    """
    try:
        with contextlib.closing(
            sqlite3.connect(
                f"{path.absolute().as_uri()}?{'immutable=1' if read_only_uri(path) else 'mode=rw'}",
                timeout=60,
                uri=True,
            )
        ) as database:
            yield database
    except sqlite3.OperationalError as error:
        if not path.stat().st_size:
            raise DamagedFileError(path, "is empty", DATABASE_REMEDY) from error
        raise  # locked, or a wrong query
    except sqlite3.DatabaseError as error:
        raise DamagedFileError(path, f"cannot be read as a SQLite database ({error})", DATABASE_REMEDY) from error


def escape_name(path: Path) -> str:
    """Write a path as text, with backslashes for bytes that are not UTF-8."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def has_file(path: Path) -> bool:
    """Whether there is a file of people; a dangling symlink is an error, not a missing file."""
    note_read(path)
    return os.path.lexists(path)


def require_regular_file(path: Path) -> None:
    """Require a regular file (or none) with a UTF-8 name, before it is opened.

    Raises:
        StorageError: if it is a folder, a named pipe, a socket, a device or a dangling symlink, or its name is not
            UTF-8.
    """
    note_read(path)
    name = escape_name(Path(path.name))
    if name != path.name:
        raise StorageError(f"a file's name must be UTF-8, but found {name}; rename it")
    if os.path.lexists(path) and not path.is_file():
        raise StorageError(f"{name} must be a regular file, but is {_kind(path)}; remove it or put a file in its place")


def _kind(path: Path) -> str:
    kinds = {
        "a dangling symlink": not path.exists(),
        "a folder": path.is_dir(),
        "a named pipe": path.is_fifo(),
        "a socket": path.is_socket(),
    }
    return next((kind for kind, is_kind in kinds.items() if is_kind), "a device")


def read_regular_file(path: Path) -> bytes:
    """Read a file; empty if it is missing.

    Raises:
        StorageError: as `require_regular_file`.
    """
    require_regular_file(path)
    return path.read_bytes() if path.exists() else b""


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's content; size and time of a file too large for any reader."""
    facts = path.stat()
    if facts.st_size > MAX_HASHED_BYTES:
        return f"{facts.st_size} {facts.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def require_new_folder(folder: Path) -> None:
    """Require that the folder of a new home is empty, or can be created.

    Raises:
        StorageError: if it holds files, is a file or lies below one.
    """
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not place.is_dir():
        raise StorageError(f"a home needs a new or empty folder, but {place} is a file; name another")
    if place == folder and any(folder.iterdir()):
        raise StorageError(f"a home needs a new or empty folder, but {folder} holds files; name another")


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; the kernel releases it when the process dies.

    Below a folder that this process may only read, a lock that is missing is not needed.

    Raises:
        OSError: if the lock file cannot be opened.
    """
    with _open_lock(path) as file:
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open_lock(path: Path) -> contextlib.AbstractContextManager[IO[bytes] | None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        if error.errno not in {errno.EROFS, errno.EACCES}:
            raise
        return path.open("rb") if path.exists() else contextlib.nullcontext()


def read_only_uri(path: Path) -> str | None:
    """URI of a database beside which this process may create no journal, as one that does not change; else None."""
    if not path.exists() or os.access(path.parent, os.W_OK):
        return None
    return path.absolute().as_uri()


def require_picture_path(path: Path) -> Path:
    """Return the path of a picture to write.

    Raises:
        ValueError: if its suffix is neither .png nor .svg.
    """
    if path.suffix.lower() not in PICTURE_FORMATS:
        found = f"ends in {path.suffix}" if path.suffix else "has no suffix"
        raise ValueError(f"the name of a picture must end in .png or .svg, but {path.name} {found}; name another path")
    return path


def write_picture(path: Path, picture: "Picture | RenderedPicture") -> None:
    """Write a picture in the format that the suffix of the path names."""
    suffix = require_picture_path(path).suffix.lower()
    write_atomically(path, picture.svg() if suffix == ".svg" else picture.png())
