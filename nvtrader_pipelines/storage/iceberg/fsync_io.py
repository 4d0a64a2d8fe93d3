"""File IO that finds the files of a moved home, and syncs new ones: they survive a power cut."""

import os
from typing import Any

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from nvtrader_pipelines.storage.iceberg.locations import FOLDER, present_path


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
    """File IO of pyarrow below the present folder of the tables, with synced outputs."""

    def new_input(self, location: str) -> PyArrowFile:
        """Return the input file of a recorded location."""
        return super().new_input(self._present_path(location))

    def new_output(self, location: str) -> PyArrowFile:
        """Return the output file of a recorded location."""
        output = super().new_output(self._present_path(location))
        output.__class__ = SyncedFile
        return output

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file of a recorded location."""
        super().delete(self._present_path(location if isinstance(location, str) else location.location))

    def _present_path(self, location: str) -> str:
        return present_path(location, self.properties[FOLDER])
