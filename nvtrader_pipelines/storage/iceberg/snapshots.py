"""Snapshots of a table: which are named and so stay, and how the others go."""

import json
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

import polars as pl
from pyiceberg.table import Table as IcebergTable


def named_snapshots(panels: pl.DataFrame, runs: Iterable[str]) -> set[int]:
    """Every snapshot that a panel names in a column, or a run in its JSON of table to snapshot id."""
    columns = [name for name in panels.columns if name.endswith("_snapshot_id")]
    named = {value for name in columns for value in panels[name] if value is not None}
    return named.union(*(json.loads(text).values() for text in runs))


def expire(iceberg: IcebergTable, pinned: set[int], before: datetime, n_newest: int = 1) -> int:
    """Drop the snapshots superseded before a time, but those pinned and the newest; how many went.

    The caller holds the table's lock: an expiry that raced with a commit would be refused.
    """
    snapshots = sorted(iceberg.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    limit = before.timestamp() * 1000
    # A snapshot is as old as the one that replaced it, not as its own commit.
    followed = list(pairwise(snapshots))[: max(0, len(snapshots) - n_newest)]
    old = [
        snapshot.snapshot_id
        for snapshot, successor in followed
        if successor.timestamp_ms < limit and snapshot.snapshot_id not in pinned
    ]
    if old:
        iceberg.maintenance.expire_snapshots().by_ids(old).commit()
    return len(old)
