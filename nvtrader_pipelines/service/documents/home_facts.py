"""Documents of commands on a whole home: creation, tables, checks, messages, backups and report."""

from datetime import datetime
from pathlib import Path

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.evaluation.findings import PromotionFinding


class CreatedHome(Document):
    """New home."""

    home: Path


class ListedTable(Document):
    """Size and snapshot of a table; null for a view."""

    name: str
    n_rows: int | None
    n_files: int | None
    n_bytes: int | None
    snapshot_id: int | None  # null before the first write, like the time
    updated_at: datetime | None


class TableColumn(Document):
    """Column of a table or a view."""

    column: str
    type: str  # of DuckDB
    meaning: str


class ListedCheck(Document):
    """Result of a check of the home."""

    check: str
    result: str
    problem: str  # with what to do; empty if there is none


class ChannelMessage(Document):
    """Message that was sent to a channel, or the problem of the channel."""

    channel: str
    message: str
    problem: str  # empty if it was sent


class BackupDocument(Document):
    """Backup of a home."""

    path: Path
    n_files: int
    n_bytes: int  # of the backup
    outside: tuple[str, ...]  # parts of the home that the backup lacks


class RestoredHome(Document):
    """Home restored from a backup."""

    home: Path
    backup_of: str  # folder of the home that was backed up
    created_at: datetime  # of the backup
    n_files: int
    interrupted_runs: tuple[str, ...]  # ids of runs that were under way
    outside: tuple[str, ...]  # parts of the home that the backup lacks


class HomeReport(Document):
    """File with all results of a home."""

    path: Path
    bytes: int
    runs: int
    findings: tuple[PromotionFinding, ...]
    parts: tuple[str, ...]
    missing: dict[str, str]  # command that makes the data, by title of the part
