"""Keeping the warehouse small: superseded snapshots that nothing refers to expire, files that none needs go."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from pyiceberg.table import Table as IcebergTable

from nvtrader_pipelines.storage.catalog import lock_path
from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.tables import MARKET_PANEL, RUNS, TABLES
from nvtrader_pipelines.storage.warehouse import Warehouse

GRACE = timedelta(days=1)  # an unreferenced file may belong to a commit under way or to views just opened


@dataclass(frozen=True)
class Tidied:
    """What went."""

    n_snapshots: int
    n_files: int
    n_bytes: int


def tidy(lake: Warehouse, now: datetime, keep: timedelta = timedelta(days=7)) -> Tidied:
    """Expire snapshots superseded before `now - keep`, and delete files no snapshot reaches for longer than a day.

    Snapshots that `gold.market_panel`, `rl.runs` or the ledger name are kept for ever: what they record can be read
    again, and an interrupted run goes on.
    """
    pinned = pinned_snapshots(lake)
    parts = []
    for table in TABLES:
        if lake.find(table) is None:
            continue
        with locked(lock_path(lake.home, table.name)):
            n_snapshots = _expire(lake.load(table), pinned, now - keep)
            sizes = _sweep(lake.load(table), min(now - GRACE, now - keep))
            parts.append((n_snapshots, len(sizes), sum(sizes)))
    return Tidied(*(sum(part[i] for part in parts) for i in range(3)))


def pinned_snapshots(lake: Warehouse) -> set[int]:
    """Every snapshot that a panel or a run names, be it complete or only begun."""
    panels = lake.read(MARKET_PANEL)
    columns = [name for name in panels.columns if name.endswith("_snapshot_id")]
    named = {value for name in columns for value in panels[name] if value is not None}
    completed, begun = lake.read(RUNS, columns=["snapshot_ids"]), Ledger.open(lake.home).runs()
    for text in (*completed["snapshot_ids"], *begun["snapshot_ids"]):
        named |= set(json.loads(text).values())
    return named


def _expire(iceberg: IcebergTable, pinned: set[int], before: datetime) -> int:
    snapshots = sorted(iceberg.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    limit = before.timestamp() * 1000
    # A snapshot is as old as the one that replaced it, not as its own commit.
    old = [
        snapshot.snapshot_id
        for snapshot, successor in pairwise(snapshots)
        if successor.timestamp_ms < limit and snapshot.snapshot_id not in pinned
    ]
    if old:
        iceberg.maintenance.expire_snapshots().by_ids(old).commit()
    return len(old)


def _sweep(iceberg: IcebergTable, before: datetime) -> list[int]:
    """Delete the table's files that no snapshot reaches and that are older than `before`; their sizes."""
    folder = Path(iceberg.location().removeprefix("file://"))
    needed = _reachable(iceberg)
    facts = {path: path.stat() for path in folder.rglob("*") if path.is_file() and str(path) not in needed}
    gone = {path: fact.st_size for path, fact in facts.items() if datetime.fromtimestamp(fact.st_mtime, UTC) < before}
    for path in gone:
        path.unlink()
    return list(gone.values())


def _reachable(iceberg: IcebergTable) -> set[str]:
    """Every file that the metadata, its log or a snapshot refers to."""
    found = {iceberg.metadata_location, *(entry.metadata_file for entry in iceberg.metadata.metadata_log)}
    manifests = {}
    for snapshot in iceberg.snapshots():
        found.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(iceberg.io)}
    for path, manifest in manifests.items():
        entries = manifest.fetch_manifest_entry(iceberg.io, discard_deleted=True)
        found |= {path, *(entry.data_file.file_path for entry in entries)}
    return {path.removeprefix("file://") for path in found}
