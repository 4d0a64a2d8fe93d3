"""Compaction: merge the small files of a partition, because a scan opens files one by one."""

from itertools import groupby

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable

from nvtrader_pipelines.storage.iceberg.commits import Merge, plan_files, read_batches
from nvtrader_pipelines.storage.iceberg.data_files import DataFiles
from nvtrader_pipelines.storage.iceberg.locations import local_path
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.table import Table

SMALL_BYTES = 64 << 20


def compact(tables: Warehouse, table: Table) -> list[Merge]:
    """Merge the small files of each partition in one commit; return the committed merges.

    Writers may run meanwhile: only the commit takes the table's lock, and it drops merges of partitions that were
    replaced in between. If the process is killed, upkeep later deletes the orphaned files.
    """
    iceberg = tables.find(table)
    if iceberg is None:
        return []
    merges = [_merge_files(table, iceberg, sources) for sources in _small_file_groups(table, iceberg)]
    return tables.merge(table, merges) if merges else []


def _small_file_groups(table: Table, iceberg: IcebergTable) -> list[list[DataFile]]:
    """Groups of two or more small files of the same partition, in reading order."""
    files = [task.file for task in plan_files(table, iceberg) if task.file.file_size_in_bytes < SMALL_BYTES]
    groups = [list(group) for _, group in groupby(files, key=lambda file: [str(value) for value in file.partition])]
    return [group for group in groups if len(group) > 1]


def _merge_files(table: Table, iceberg: IcebergTable, sources: list[DataFile]) -> Merge:
    with DataFiles(iceberg) as merged:
        for batch in read_batches(table, (local_path(iceberg, file.file_path) for file in sources)):
            merged.write(batch)
    return Merge(sources, merged.paths)
