"""A pyiceberg file IO that syncs every local file it closes, so that a committed table survives power loss."""

import os
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


def sync(path: str) -> None:
    """Flush a file and the folder that names it to disk."""
    for place, flags in ((path, os.O_RDONLY), (os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)):  # noqa: PTH120
        handle = os.open(place, flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class SyncedStream:
    """An output stream that syncs when closed."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream, self._path = stream, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> "SyncedStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close, then sync."""
        if not self._stream.closed:
            self._stream.close()
            sync(self._path)


class SyncedFile(PyArrowFile):
    """A local file whose output is synced."""

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's signature
        """A stream that syncs when closed."""
        return SyncedStream(super().create(overwrite), self._path)


class FsyncFileIO(PyArrowFileIO):
    """pyarrow's file IO with synced local outputs."""

    def new_output(self, location: str) -> PyArrowFile:
        """The file to write."""
        output = super().new_output(location)
        if location.startswith(("file:", "/")):
            output.__class__ = SyncedFile
        return output
