"""Check of all files of the tables' current states, for `nvtrader doctor`."""

from collections.abc import Iterator
from pathlib import Path

from pyiceberg.table import Table as IcebergTable

from nvtrader_pipelines.storage.errors import DamagedFileError, StorageError, UnavailableError
from nvtrader_pipelines.storage.file_problems import MISSING, PARQUET, TORN, ending_problem, rebuild_remedy
from nvtrader_pipelines.storage.iceberg.catalog import table_errors
from nvtrader_pipelines.storage.iceberg.commits import plan_files
from nvtrader_pipelines.storage.iceberg.locations import local_path
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.object_store import is_object, object_size
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import TABLES


def find_damaged_tables(tables: Warehouse) -> Iterator[StorageError]:
    """Find damaged metadata, manifests and data files of the tables."""
    remedy = rebuild_remedy(tables.home)
    for table in TABLES:
        try:
            with table_errors(tables.home, table):
                sizes = _recorded_sizes(table, tables.find(table))
        except UnavailableError as error:  # the catalog's, and so of every table
            yield error
            return
        except StorageError as error:
            yield error
            continue
        for path, size in sizes.items():
            if problem := _file_problem(path, size):
                yield DamagedFileError(path, problem, remedy)


def _file_problem(path: str, size: int) -> str | None:
    if not is_object(path):
        return ending_problem(Path(path), PARQUET, size)
    stored = object_size(path)  # an object is stored as a whole
    return None if stored == size else MISSING if stored is None else TORN


def _recorded_sizes(table: Table, iceberg: IcebergTable | None) -> dict[str, int]:
    """Sizes of the data files of a table's current state by path."""
    if iceberg is None:
        return {}
    files = [task.file for task in plan_files(table, iceberg)]
    return {local_path(iceberg, file.file_path): file.file_size_in_bytes for file in files}
