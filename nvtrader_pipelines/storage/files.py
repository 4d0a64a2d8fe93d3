"""Files that are there whole or not at all."""

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nvtrader_pipelines.storage.errors import StorageError


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside, sync, rename: a reader or a crash sees the old file or the new one."""
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
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock between processes; the kernel frees it when a process dies.

    Raises:
        OSError: if a folder above is a link to nowhere, or the lock cannot be opened.
    """
    is_there(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_there(path: Path) -> bool:
    """Whether anything is in a file's place; a link to nowhere is.

    Raises:
        OSError: if that cannot be seen, since a folder above is a link to nowhere (a disk that is not mounted), is no
            folder, or may not be entered.
    """
    try:
        path.lstat()
    except FileNotFoundError:
        lost = next((folder for folder in path.parents if folder.is_symlink() and not folder.exists()), None)
        if lost is not None:
            raise OSError(errno.ENOENT, f"{lost} is a link to nowhere") from None
        return False
    return True


def is_given(path: Path) -> bool:
    """Whether a file is there that a person may leave out.

    Raises:
        StorageError: if that cannot be seen: such a file is not taken for left out.
    """
    try:
        return is_there(path)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be looked at ({error.strerror}), and is not taken for left out; put its folder back"
        ) from error
