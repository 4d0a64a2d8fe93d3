"""Snapshots of a table: those that panels and runs name are pinned, the others expire."""

import json
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

import polars as pl
from pyiceberg.table import Table as IcebergTable

from nvtrader_pipelines.storage.iceberg.locations import local_path


def named_snapshots(panels: pl.DataFrame, runs: Iterable[str]) -> set[int]:
    """Snapshot ids that panels name in a column, or runs in their JSON of table to snapshot id."""
    columns = [name for name in panels.columns if name.endswith("_snapshot_id")]
    named = {value for name in columns for value in panels[name] if value is not None}
    return named.union(*(json.loads(text).values() for text in runs))


def reachable_paths(iceberg: IcebergTable) -> set[str]:
    """Paths on disk of all files to which the metadata, its log or a snapshot refers."""
    paths = {iceberg.metadata_location, *(entry.metadata_file for entry in iceberg.metadata.metadata_log)}
    manifests = {}
    for snapshot in iceberg.snapshots():
        paths.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(iceberg.io)}
    for path, manifest in manifests.items():
        entries = manifest.fetch_manifest_entry(iceberg.io, discard_deleted=True)
        paths |= {path, *(entry.data_file.file_path for entry in entries)}
    return {local_path(iceberg, path) for path in paths}


def expire_snapshots(iceberg: IcebergTable, pinned: set[int], before: datetime, n_newest: int = 1) -> int:
    """Expire snapshots superseded before a time, but no pinned or newest ones; return how many.

    The caller holds the table's lock, since an expiry that races with a commit fails.
    """
    snapshots = sorted(iceberg.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    limit = before.timestamp() * 1000
    # The age of a snapshot counts from the commit that superseded it, not from its own.
    superseded = list(pairwise(snapshots))[: max(0, len(snapshots) - n_newest)]
    old = [
        snapshot.snapshot_id
        for snapshot, successor in superseded
        if successor.timestamp_ms < limit and snapshot.snapshot_id not in pinned
    ]
    if old:
        iceberg.maintenance.expire_snapshots().by_ids(old).commit()
    return len(old)
