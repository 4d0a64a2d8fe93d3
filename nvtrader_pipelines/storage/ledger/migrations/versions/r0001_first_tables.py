"""First tables, and triggers that keep versions from being changed or deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0.2.0"
down_revision = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
UtcTime = sa.DateTime(timezone=True)

MESSAGE = "a version of the ledger is never changed and never deleted; register another one"
SQLITE = (
    f"CREATE TRIGGER versions_stay_as_they_are BEFORE UPDATE ON versions BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
    f"CREATE TRIGGER versions_stay BEFORE DELETE ON versions BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
    # INSERT OR REPLACE deletes without firing the trigger above; re-inserting the same version is ignored
    f"""
    CREATE TRIGGER versions_are_inserted_once BEFORE INSERT ON versions
    WHEN EXISTS (SELECT 1 FROM versions WHERE spec_hash = NEW.spec_hash OR partition_key = NEW.partition_key)
    BEGIN SELECT CASE
        WHEN EXISTS (SELECT 1 FROM versions WHERE spec_hash = NEW.spec_hash AND content <> NEW.content)
        THEN RAISE(ABORT, '{MESSAGE}') ELSE RAISE(IGNORE) END;
    END
    """,
)
POSTGRES = (
    f"""
    CREATE FUNCTION versions_stay() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION '{MESSAGE}'; END $$
    """,
    "CREATE TRIGGER versions_stay BEFORE UPDATE OR DELETE ON versions FOR EACH ROW EXECUTE FUNCTION versions_stay()",
    "CREATE TRIGGER versions_all_stay BEFORE TRUNCATE ON versions EXECUTE FUNCTION versions_stay()",
)


def upgrade() -> None:
    """Create the tables and triggers."""
    _create_versions()
    _create_runs()
    _create_parts_of_runs()
    for statement in SQLITE if op.get_bind().dialect.name == "sqlite" else POSTGRES:
        op.execute(statement)


def _create_versions() -> None:
    op.create_table(
        "specs", sa.Column("name", sa.Text, primary_key=True), sa.Column("created_at", UtcTime, nullable=False)
    )
    op.create_table(
        "versions",
        sa.Column("spec_hash", sa.Text, primary_key=True),
        sa.Column("partition_key", sa.Text, nullable=False, unique=True),
        sa.Column("name", sa.Text, sa.ForeignKey("specs.name"), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("parent_hash", sa.Text, sa.ForeignKey("versions.spec_hash")),
        sa.Column("created_at", UtcTime, nullable=False),
        sqlite_with_rowid=False,
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False, index=True),
        sa.Column("parent_run_id", sa.Text),
        sa.Column("spec_hash", sa.Text, sa.ForeignKey("versions.spec_hash"), nullable=False),
        sa.Column("partition_key", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("window_first", sa.Date),
        sa.Column("window_last", sa.Date),
        sa.Column("panel_digest", sa.Text, nullable=False),
        sa.Column("snapshot_ids", sa.Text, nullable=False),
        sa.Column("code_version", sa.Text, nullable=False),
        sa.Column("seeds", sa.Text, nullable=False),
        sa.Column("metrics", sa.Text),
        sa.Column("mlflow_run_id", sa.Text),
        sa.Column("dagster_run_id", sa.Text),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", Id, nullable=False),
        sa.Column("process_started_at", UtcTime, nullable=False),
        sa.Column("started_at", UtcTime, nullable=False),
        sa.Column("finished_at", UtcTime),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("message", sa.Text),
        sa.Column("policies_sha256", sa.Text),
    )


def _create_parts_of_runs() -> None:
    op.create_table(
        "policies",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), primary_key=True),
        sa.Column("file", sa.Text, primary_key=True),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("fold", sa.Integer, nullable=False),
        sa.Column("seed", Id, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", Id, primary_key=True),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), nullable=False, index=True),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("fold", sa.Integer),
        sa.Column("seed", Id),
        sa.Column("timesteps", Id),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("timestamp", UtcTime, nullable=False),
    )
