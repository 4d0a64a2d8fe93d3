"""The ledger's tables as the code knows them; the migrations make them in a database."""

from datetime import UTC, datetime

import polars as pl
import sqlalchemy as sa

HEAD = "0.2.0"  # revision that this code needs, named after the first release that has it
VERSION_TABLE = "ledger_schema"  # which revision a database has
METADATA = sa.MetaData()
Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts up only an INTEGER


class UtcTime(sa.types.TypeDecorator[datetime]):
    """A moment, kept in UTC; SQLite has no time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """To UTC.

        Raises:
            ValueError: if the time has no zone.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time in the ledger must have a zone, but {value} has none; pass it in UTC")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """In UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


SPECS = sa.Table(
    "specs",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True, doc="name of the experiment"),
    sa.Column("created_at", UtcTime, nullable=False, doc="when its first version was registered"),
)
VERSIONS = sa.Table(
    "versions",
    METADATA,
    sa.Column("spec_hash", sa.Text, primary_key=True, doc="SHA-256 of the content, 64 hexadecimal digits"),
    sa.Column("partition_key", sa.Text, nullable=False, unique=True, doc="name@hash8"),
    sa.Column("name", sa.Text, sa.ForeignKey("specs.name"), nullable=False, doc="name of the experiment"),
    sa.Column("content", sa.Text, nullable=False, doc="the spec as canonical JSON; never changed, never deleted"),
    sa.Column("parent_hash", sa.Text, sa.ForeignKey("versions.spec_hash"), doc="the version it was made from"),
    sa.Column("created_at", UtcTime, nullable=False, doc="when it was registered"),
    sqlite_with_rowid=False,  # a second key, by which a REPLACE could take a row's place
)
RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("run_id", sa.Text, primary_key=True, doc="identity of the run, 16 hexadecimal digits"),
    sa.Column("kind", sa.Text, nullable=False, doc="walk_forward, replay or forward"),
    sa.Column("status", sa.Text, nullable=False, index=True, doc="running, done, failed or interrupted"),
    sa.Column("parent_run_id", sa.Text, doc="the run whose policies it uses; null where it trains its own"),
    sa.Column("spec_hash", sa.Text, sa.ForeignKey("versions.spec_hash"), nullable=False, doc="its version"),
    sa.Column("partition_key", sa.Text, nullable=False, doc="name@hash8 of its version"),
    sa.Column("source", sa.Text, nullable=False, doc="market source"),
    sa.Column("window_first", sa.Date, doc="first session of the test windows"),
    sa.Column("window_last", sa.Date, doc="last session of the test windows"),
    sa.Column("panel_digest", sa.Text, nullable=False, doc="SHA-256 of the panel's arrays"),
    sa.Column("snapshot_ids", sa.Text, nullable=False, doc="JSON of table to snapshot id the panel was read at"),
    sa.Column("code_version", sa.Text, nullable=False, doc="version of this package and digest of its sources"),
    sa.Column("seeds", sa.Text, nullable=False, doc="JSON list of the random seeds"),
    sa.Column("metrics", sa.Text, doc="JSON of name to value, once it is done"),
    sa.Column("mlflow_run_id", sa.Text, doc="MLflow run, where it was tracked"),
    sa.Column("dagster_run_id", sa.Text, doc="Dagster run that launched it, where one did"),
    sa.Column("task_id", sa.Text, nullable=False, doc="the last execution of the run"),
    sa.Column("host", sa.Text, nullable=False, doc="machine of the last execution"),
    sa.Column("pid", Id, nullable=False, doc="process of the last execution"),
    sa.Column("process_started_at", UtcTime, nullable=False, doc="when that process began: its number is used again"),
    sa.Column("started_at", UtcTime, nullable=False, doc="when the last execution began"),
    sa.Column("finished_at", UtcTime, doc="when the last execution ended; null while it runs"),
    sa.Column("attempts", sa.Integer, nullable=False, doc="executions so far"),
    sa.Column("message", sa.Text, doc="why it failed or was interrupted"),
    sa.Column("policies_sha256", sa.Text, doc="digest of the manifest: policy files, folds, seeds chosen, thresholds"),
)
POLICIES = sa.Table(
    "policies",
    METADATA,
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), primary_key=True, doc="the run that trained it"),
    sa.Column("file", sa.Text, primary_key=True, doc="file name in the policy library"),
    sa.Column("sha256", sa.Text, nullable=False, doc="SHA-256 of the file"),
    sa.Column("fold", sa.Integer, nullable=False, doc="number of the walk-forward fold"),
    sa.Column("seed", Id, nullable=False, doc="random seed of the training"),
)
EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("id", Id, primary_key=True, doc="counts up"),
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), nullable=False, index=True, doc="the run"),
    sa.Column("task_id", sa.Text, nullable=False, doc="the execution of the run"),
    sa.Column("stage", sa.Text, nullable=False, doc="start, train.step, train.checkpoint, done, error and so on"),
    sa.Column("message", sa.Text, nullable=False, doc="what happened, in words"),
    sa.Column("fold", sa.Integer, doc="number of the walk-forward fold"),
    sa.Column("seed", Id, doc="random seed of the training"),
    sa.Column("timesteps", Id, doc="environment steps of this fold and seed so far"),
    sa.Column("metrics", sa.Text, nullable=False, doc="JSON of name to value"),
    sa.Column("timestamp", UtcTime, nullable=False, doc="when it happened"),
)
TABLES = (SPECS, VERSIONS, RUNS, POLICIES, EVENTS)


def polars_schema(table: sa.Table) -> pl.Schema:
    """The columns as a frame has them."""
    return pl.Schema({column.name: _polars_type(column.type) for column in table.columns})


def _polars_type(kind: sa.types.TypeEngine) -> pl.DataType:
    if isinstance(kind, UtcTime):
        return pl.Datetime("us", "UTC")
    if isinstance(kind, sa.Date):
        return pl.Date()
    return pl.Int64() if isinstance(kind, sa.Integer) else pl.String()
