"""File IO that syncs local files on close, so that committed tables survive a power cut."""

import os
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


def sync(path: str) -> None:
    """Flush a file and its folder to disk."""
    for place, flags in ((path, os.O_RDONLY), (os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)):  # noqa: PTH120
        handle = os.open(place, flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class SyncedStream:
    """Output stream that syncs when closed."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream, self._path = stream, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> "SyncedStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream, then sync the file."""
        if not self._stream.closed:
            self._stream.close()
            sync(self._path)


class SyncedFile(PyArrowFile):
    """Local file whose output is synced."""

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's signature
        """Create a stream that syncs when closed."""
        return SyncedStream(super().create(overwrite), self._path)


class FsyncFileIO(PyArrowFileIO):
    """File IO of pyarrow with synced local outputs."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return the output file at a location."""
        output = super().new_output(location)
        if location.startswith(("file:", "/")):
            output.__class__ = SyncedFile
        return output
