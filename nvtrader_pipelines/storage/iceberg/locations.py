"""Places of Iceberg files: recorded where the table was built, used where the home is now."""

from typing import TYPE_CHECKING

from nvtrader_pipelines.storage.errors import StorageError

if TYPE_CHECKING:  # slow to import, and every command finds its files
    from pyiceberg.table import Table as IcebergTable

TABLES_PART = "/warehouse/iceberg/"  # every home has its tables below this folder
FOLDER_PROPERTY = "warehouse"  # property of the catalog and its file IO: the folder of the tables


def present_path(location: str, folder: str) -> str:
    """Path of a recorded location below the present folder of the tables.

    Raises:
        StorageError: if the location is not below the tables of any home.
    """
    _, part, inside = location.rpartition(TABLES_PART)
    if not part:
        raise StorageError(
            f"a file of a table must lie below {TABLES_PART[1:-1]} of its home, but one is at {location}"
        )
    return f"{folder}/{inside}"


def local_path(iceberg: "IcebergTable", location: str) -> str:
    """Path on disk of a location that a table's metadata record."""
    return present_path(location, iceberg.io.properties[FOLDER_PROPERTY])
