"""File IO that finds the files of a moved home, and syncs new ones against a power cut.

pyiceberg's own file IO takes a quarter of a second to import, for stores other than a local folder.
"""

import os
from pathlib import Path
from typing import IO, Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from nvtrader_pipelines.storage.iceberg.locations import FOLDER_PROPERTY, present_path
from nvtrader_pipelines.storage.object_store import create_object, delete_object, is_object, object_size, open_object


def sync(path: str) -> None:
    """Flush a file and its folder to disk."""
    for place, flags in ((path, os.O_RDONLY), (os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)):  # noqa: PTH120
        handle = os.open(place, flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_output(path: str) -> Any:
    """Open a stream of Arrow to write a new file or object."""
    if is_object(path):
        return create_object(path)
    from pyarrow import OSFile  # takes a tenth of a second, and reading needs none

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return OSFile(path, "wb")


def delete_file(path: str) -> None:
    """Delete a file or an object, if there is one."""
    if is_object(path):
        delete_object(path)
    else:
        Path(path).unlink(missing_ok=True)


class SyncedStream:
    """Output stream that syncs when closed."""

    def __init__(self, stream: IO[bytes], path: str) -> None:
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


class LocalFile(InputFile, OutputFile):
    """Local file whose output is synced."""

    def __len__(self) -> int:
        """Size in bytes."""
        return Path(self.location).stat().st_size

    def exists(self) -> bool:
        """Whether the file exists."""
        return Path(self.location).exists()

    def to_input_file(self) -> "LocalFile":
        """Return the file itself, to read what was written."""
        return self

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002, ARG002 - pyiceberg's signature
        """Open the file to read."""
        return Path(self.location).open("rb")

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's signature
        """Create a stream that syncs when closed.

        Raises:
            FileExistsError: if the file exists and must not be overwritten.
        """
        path = Path(self.location)
        path.parent.mkdir(parents=True, exist_ok=True)
        return SyncedStream(path.open("wb" if overwrite else "xb"), self.location)


class StoredObject(InputFile, OutputFile):
    """Object of a store, which is there as a whole or not at all."""

    def __len__(self) -> int:
        """Size in bytes."""
        return object_size(self.location) or 0

    def exists(self) -> bool:
        """Whether the object exists."""
        return object_size(self.location) is not None

    def to_input_file(self) -> "StoredObject":
        """Return the object itself, to read what was written."""
        return self

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002, ARG002 - pyiceberg's signature
        """Open the object to read."""
        return open_object(self.location)

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002, ARG002 - pyiceberg's signature
        """Create a stream whose content is stored when it is closed; pyiceberg uses a name once."""
        return create_object(self.location)


class FsyncFileIO(FileIO):
    """File IO below the present folder of the tables, with synced outputs."""

    def new_input(self, location: str) -> LocalFile | StoredObject:
        """Return the input file of a recorded location."""
        path = present_path(location, self.properties[FOLDER_PROPERTY])
        return StoredObject(path) if is_object(path) else LocalFile(path)

    def new_output(self, location: str) -> LocalFile | StoredObject:
        """Return the output file of a recorded location."""
        return self.new_input(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file of a recorded location."""
        recorded = location if isinstance(location, str) else location.location
        delete_file(present_path(recorded, self.properties[FOLDER_PROPERTY]))
