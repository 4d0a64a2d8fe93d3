"""Check of all files of the tables' current states, for `nvtrader doctor`."""

from collections.abc import Iterator
from pathlib import Path

from nvtrader_pipelines.storage.damage.file_problems import PARQUET, ending_problem
from nvtrader_pipelines.storage.damage.remedies import rebuild_remedy
from nvtrader_pipelines.storage.errors import DamagedFileError, StorageError
from nvtrader_pipelines.storage.iceberg.catalog import table_errors
from nvtrader_pipelines.storage.iceberg.commits import plan_files
from nvtrader_pipelines.storage.iceberg.locations import local_path
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.tables import TABLES


def find_damaged_tables(tables: Warehouse) -> Iterator[StorageError]:
    """Find damaged metadata, manifests and data files of the tables; sizes are those of the manifests."""
    remedy = rebuild_remedy(tables.home)
    for table in TABLES:
        try:
            with table_errors(tables.home, table):
                iceberg = tables.find(table)
                tasks = plan_files(table, iceberg) if iceberg else []
        except StorageError as error:
            yield error
            continue
        for task in tasks:
            path = Path(local_path(iceberg, task.file.file_path))
            if problem := ending_problem(path, PARQUET, task.file.file_size_in_bytes):
                yield DamagedFileError(path, problem, remedy)
