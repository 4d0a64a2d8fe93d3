"""Small files of a partition become few: what a scan of many would open one by one."""

from itertools import groupby

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable

from nvtrader_pipelines.storage.iceberg.commits import Merge, path_of, planned, stored_batches
from nvtrader_pipelines.storage.iceberg.data_files import DataFiles
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.table import Table

SMALL_BYTES = 64 << 20


def compact(tables: Warehouse, table: Table) -> list[Merge]:
    """Merge the small files of each partition in one commit of the table; what was merged.

    The new files are written beside running writers; only the commit takes the table's lock, and leaves out partitions
    that were replaced meanwhile. Killed at any moment, it leaves files that the sweep finds.
    """
    iceberg = tables.find(table)
    groups = [] if iceberg is None else _small_files(table, iceberg)
    return tables.merge(table, [_merged(table, iceberg, sources) for sources in groups if iceberg]) if groups else []


def _small_files(table: Table, iceberg: IcebergTable) -> list[list[DataFile]]:
    """Two or more small files of one partition, in the order in which they are read."""
    files = [task.file for task in planned(table, iceberg) if task.file.file_size_in_bytes < SMALL_BYTES]
    groups = [list(group) for _, group in groupby(files, key=lambda file: [str(value) for value in file.partition])]
    return [group for group in groups if len(group) > 1]


def _merged(table: Table, iceberg: IcebergTable, sources: list[DataFile]) -> Merge:
    with DataFiles(iceberg) as merged:
        for batch in stored_batches(table, map(path_of, sources)):
            merged.write(batch)
    return Merge(sources, merged.paths)
