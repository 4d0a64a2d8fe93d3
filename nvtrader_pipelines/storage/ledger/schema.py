"""Tables of the ledger as declared in code; the migrations create them in a database."""

from datetime import UTC, datetime

import polars as pl
import sqlalchemy as sa

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema

HEAD = "0.6.0"  # revision that this code needs
EARLIER_REVISIONS = ("0.5.0", "0.4.0", "0.3.0", "0.2.0")  # revisions that opening the ledger migrates
VERSION_TABLE = "ledger_schema"  # holds the revision of a database
METADATA = sa.MetaData()
Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite only autoincrements an INTEGER


class UtcTime(sa.types.TypeDecorator[datetime]):
    """Time stored in UTC, since SQLite has no time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Convert a time to UTC for storage.

        Raises:
            ValueError: if the time has no time zone.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Return a stored time in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


SPECS = sa.Table(
    "specs",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True, doc="name of the experiment"),
    sa.Column("created_at", UtcTime, nullable=False, doc="when it was first recorded"),
    sa.Column("archived_at", UtcTime, doc="when it was archived; null if it is not"),
)
VERSIONS = sa.Table(
    "versions",
    METADATA,
    sa.Column("spec_hash", sa.Text, primary_key=True, doc="SHA-256 of the content, 64 hexadecimal digits"),
    sa.Column("partition_key", sa.Text, nullable=False, unique=True, doc="name@hash8"),
    sa.Column("name", sa.Text, sa.ForeignKey("specs.name"), nullable=False, doc="name of the experiment"),
    sa.Column("content", sa.Text, nullable=False, doc="the spec as canonical JSON; never changed, never deleted"),
    sa.Column("parent_hash", sa.Text, sa.ForeignKey("versions.spec_hash"), doc="hash of the parent version"),
    sa.Column("created_at", UtcTime, nullable=False, doc="when it was registered"),
    sa.Column("kind", sa.Text, nullable=False, server_default="experiment", doc="experiment or world"),
    sqlite_with_rowid=False,  # a rowid would be a second key, by which a REPLACE could overwrite a row
)
RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("run_id", sa.Text, primary_key=True, doc="identity of the run, 16 hexadecimal digits"),
    sa.Column("kind", sa.Text, nullable=False, doc="walk_forward, replay, forward or world"),
    sa.Column("status", sa.Text, nullable=False, index=True, doc="running, done, failed or interrupted"),
    sa.Column("parent_run_id", sa.Text, doc="run whose policies it uses; null if it trains its own"),
    sa.Column("spec_hash", sa.Text, sa.ForeignKey("versions.spec_hash"), nullable=False, doc="hash of its version"),
    sa.Column("partition_key", sa.Text, nullable=False, doc="name@hash8 of its version"),
    sa.Column("source", sa.Text, nullable=False, doc="market source; of a world without a market its kind"),
    sa.Column("window_first", sa.Date, doc="first session of the test windows"),
    sa.Column("window_last", sa.Date, doc="last session of the test windows"),
    sa.Column("panel_digest", sa.Text, nullable=False, doc="SHA-256 of the panel's arrays; empty without a market"),
    sa.Column("snapshot_ids", sa.Text, nullable=False, doc="JSON of table to snapshot id at which the panel was read"),
    sa.Column("code_version", sa.Text, nullable=False, doc="version of this package and digest of its sources"),
    sa.Column("seeds", sa.Text, nullable=False, doc="JSON list of the random seeds"),
    sa.Column("metrics", sa.Text, doc="JSON of name to value; null until it is done"),
    sa.Column("mlflow_run_id", sa.Text, doc="MLflow run; null if not tracked"),
    sa.Column("dagster_run_id", sa.Text, doc="Dagster run that launched it; null if launched otherwise"),
    sa.Column("task_id", sa.Text, nullable=False, doc="id of the last execution"),
    sa.Column("host", sa.Text, nullable=False, doc="machine of the last execution"),
    sa.Column("pid", Id, nullable=False, doc="process of the last execution"),
    sa.Column("process_started_at", UtcTime, nullable=False, doc="start of that process, since numbers are reused"),
    sa.Column("started_at", UtcTime, nullable=False, doc="when the last execution began"),
    sa.Column("finished_at", UtcTime, doc="when the last execution ended; null while running"),
    sa.Column("attempts", sa.Integer, nullable=False, doc="number of executions so far"),
    sa.Column("message", sa.Text, doc="why it failed or was interrupted"),
    sa.Column("policies_sha256", sa.Text, doc="digest of the manifest: policy files, folds, chosen seeds, thresholds"),
    sa.Column("deleted_at", UtcTime, doc="when its files were deleted; it remains a trial"),
)
POLICIES = sa.Table(
    "policies",
    METADATA,
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), primary_key=True, doc="run that trained it"),
    sa.Column("file", sa.Text, primary_key=True, doc="file name in the policy library"),
    sa.Column("sha256", sa.Text, nullable=False, doc="SHA-256 of the file"),
    sa.Column("fold", sa.Integer, nullable=False, doc="number of the walk-forward fold"),
    sa.Column("seed", Id, nullable=False, doc="random seed of the training"),
)
EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("id", Id, primary_key=True, doc="sequence number"),
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), nullable=False, index=True, doc="run of the event"),
    sa.Column("task_id", sa.Text, nullable=False, doc="id of the execution"),
    sa.Column("stage", sa.Text, nullable=False, doc="start, train.step, train.checkpoint, done, error and others"),
    sa.Column("message", sa.Text, nullable=False, doc="description of the event"),
    sa.Column("fold", sa.Integer, doc="number of the walk-forward fold"),
    sa.Column("seed", Id, doc="random seed of the training"),
    sa.Column("timesteps", Id, doc="environment steps of this fold and seed so far"),
    sa.Column("metrics", sa.Text, nullable=False, doc="JSON of name to value"),
    sa.Column("timestamp", UtcTime, nullable=False, doc="when it happened"),
)
LOOKS = sa.Table(
    "looks",
    METADATA,
    sa.Column("session_id", sa.Text, primary_key=True, doc="search session; it looks once"),
    sa.Column("spec_hash", sa.Text, nullable=False, doc="hash of the configuration that was tested"),
    sa.Column("source", sa.Text, nullable=False, doc="market source"),
    sa.Column("symbols", sa.Text, nullable=False, doc="JSON list of the names"),
    sa.Column("window_first", sa.Date, nullable=False, doc="first sealed session"),
    sa.Column("window_last", sa.Date, nullable=False, doc="last sealed session"),
    sa.Column("look", sa.Integer, nullable=False, doc="number of the look at these data, from 1"),
    sa.Column("opened_at", UtcTime, nullable=False, doc="when it was opened, before the window was read"),
)
ANNOTATIONS = sa.Table(
    "annotations",
    METADATA,
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), primary_key=True, doc="run that a person annotated"),
    sa.Column("tags", sa.Text, nullable=False, doc="tags, separated by a comma and a blank; empty without any"),
    sa.Column("note", sa.Text, nullable=False, doc="note on the run; empty without one"),
)
TABLES = (SPECS, VERSIONS, RUNS, POLICIES, EVENTS, LOOKS, ANNOTATIONS)


def polars_schema(table: sa.Table) -> TableSchema:
    """Schema of the polars frame of a table."""
    return TableSchema(*(Column(column.name, _polars_type(column.type), column.doc or "") for column in table.columns))


def _polars_type(kind: sa.types.TypeEngine) -> pl.DataType:
    if isinstance(kind, UtcTime):
        return UTC_TIME
    if isinstance(kind, sa.Date):
        return pl.Date()
    return pl.Int64() if isinstance(kind, sa.Integer) else pl.String()
