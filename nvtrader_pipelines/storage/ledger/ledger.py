"""Ledger of a home: immutable versions, runs, their policies and their events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import polars as pl
import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.dialects import postgresql, sqlite

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.sealed_run import fold_and_seed
from nvtrader_pipelines.storage.errors import CodeMismatchError, NotFoundError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import Database
from nvtrader_pipelines.storage.ledger.look_rows import (
    CountLooks,
    SealedWindow,
    find_look,
    open_look,
    read_sealed_windows,
)
from nvtrader_pipelines.storage.ledger.processes import host_name, is_alive, this_process
from nvtrader_pipelines.storage.ledger.run_rows import Ending, LedgerRun, RunRow, metrics_to_json, to_json
from nvtrader_pipelines.storage.ledger.schema import (
    EVENTS,
    POLICIES,
    RUNS,
    SPECS,
    TABLES,
    VERSIONS,
    polars_schema,
)

if TYPE_CHECKING:
    from nvtrader_pipelines.experiments.spec import ExperimentSpec

# status of a run, or `deleted`
SHOWN_STATUS = pl.when(pl.col("deleted_at").is_null()).then("status").otherwise(pl.lit("deleted")).alias("status")


class Ledger:
    """Ledger of a home. Opening takes milliseconds; the connections close with the object."""

    def __init__(self, home: Home, database: Database) -> None:
        self._home, self._database = home, database

    @classmethod
    def open(cls, home: Home) -> Self:
        """Open the ledger at $NVTRADER_LEDGER_URL, else in `warehouse/ledger.db`.

        Raises:
            StorageError: if it cannot be reached, or has another revision.
        """
        return cls(home, Database.open(home))

    def register(self, spec: ExperimentSpec, parent: str | None = None) -> str:
        """Register a version and return its partition key; the same content is stored once.

        The parent is a partition key; by default that of the newest version of the same name.

        Raises:
            StorageError: if the parent is not registered, or another spec has the same partition key.
        """
        with self._database.connection() as connection:
            found = _registered_hash(connection, spec.partition_key)
        if found is None:
            with self._database.transaction() as connection:
                self._insert_version(connection, spec, parent)
                found = _registered_hash(connection, spec.partition_key)
        if found != spec.spec_hash:
            raise StorageError(
                f"{spec.partition_key} is already registered with hash {found}, but the new experiment has hash "
                f"{spec.spec_hash}; change its description, which changes the hash"
            )
        return spec.partition_key

    def read(self, partition_key: str) -> ExperimentSpec:
        """Read a registered version.

        Raises:
            StorageError: if the version is not registered or is damaged.
            CodeMismatchError: if this code refuses the version or gives it another hash.
        """
        return _parse_spec(partition_key, *self._version(partition_key))

    def source_of(self, partition_key: str) -> str:
        """Source of prices of a registered version, also of one that this code refuses.

        Raises:
            StorageError: if the version is not registered.
        """
        return json.loads(self._version(partition_key)[1])["market"]["source"]

    def _version(self, partition_key: str) -> tuple[str, str]:
        """Hash and content of a registered version."""
        query = sa.select(VERSIONS.c.spec_hash, VERSIONS.c.content).where(VERSIONS.c.partition_key == partition_key)
        with self._database.connection() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFoundError(
                f"experiment {partition_key} is not registered; put its YAML into {self._home.experiments} "
                "and let the experiment_file sensor or `nvtrader materialize` register it"
            )
        return row.spec_hash, row.content

    def versions(self) -> pl.DataFrame:
        """Registered versions of experiments, newest first."""
        return self._frame(VERSIONS, sa.select(VERSIONS).order_by(VERSIONS.c.created_at.desc(), VERSIONS.c.name))

    def archive(self, names: Iterable[str]) -> None:
        """Archive experiments by name, registered or not."""
        now = datetime.now(UTC)
        with self._database.transaction() as connection:
            for name in names:
                insert = _insert_into(connection, SPECS).values(name=name, created_at=now, archived_at=now)
                update = {"archived_at": sa.func.coalesce(SPECS.c.archived_at, now)}
                connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=update))

    def unarchive(self, names: Iterable[str]) -> None:
        """Unarchive experiments by name."""
        with self._database.transaction() as connection:
            connection.execute(sa.update(SPECS).where(SPECS.c.name.in_(list(names))).values(archived_at=None))

    def archived_names(self) -> set[str]:
        """Names of the archived experiments."""
        query = sa.select(SPECS.c.name).where(SPECS.c.archived_at.is_not(None))
        with self._database.connection() as connection:
            return set(connection.execute(query).scalars())

    def begin(self, row: RunRow) -> None:
        """Record that this process begins or resumes a run.

        A run that begins again has one more attempt, unless the same execution (`task_id`) is still running.

        Raises:
            StorageError: if the version is not registered, or the run belongs to another version.
        """
        values = _running_row(row)
        updates = {name: value for name, value in values.items() if name not in {"run_id", "spec_hash"}}
        with self._database.transaction() as connection:
            known = connection.execute(sa.select(RUNS.c.spec_hash).where(RUNS.c.run_id == row.run_id)).scalar()
            if known is not None and known != row.spec_hash:
                raise StorageError(f"run {row.run_id} belongs to version {known}, not {row.spec_hash}")
            if _registered_hash(connection, row.partition_key) != row.spec_hash:
                raise StorageError(f"run {row.run_id} needs {row.partition_key} to be registered first")
            insert = _insert_into(connection, RUNS).values(**values, attempts=1)
            is_same_execution = sa.and_(RUNS.c.task_id == row.task_id, RUNS.c.status == "running")
            computed = {
                "attempts": RUNS.c.attempts + sa.case((is_same_execution, 0), else_=1),
                "started_at": sa.case((is_same_execution, RUNS.c.started_at), else_=values["started_at"]),
            }
            connection.execute(insert.on_conflict_do_update(index_elements=["run_id"], set_={**updates, **computed}))

    def record_event(self, progress: Progress) -> None:
        """Record an event of a run.

        Raises:
            StorageError: if the run has not begun.
        """
        values = progress.model_dump(exclude={"total_timesteps", "share", "metrics"})
        with self._database.transaction() as connection:
            _require_run(connection, progress.run_id)
            connection.execute(sa.insert(EVENTS).values(**values, metrics=metrics_to_json(progress.metrics)))

    def finish(
        self,
        run_id: str,
        status: Ending,
        *,
        metrics: Mapping[str, float] | None = None,
        mlflow_run_id: str | None = None,
        message: str | None = None,
    ) -> None:
        """Record the end of a run; metrics and MLflow run are only overwritten by given values.

        Raises:
            StorageError: if the run has not begun.
        """
        values = {"status": status, "message": message, "finished_at": datetime.now(UTC)}
        values |= {} if metrics is None else {"metrics": metrics_to_json(metrics)}
        values |= {} if mlflow_run_id is None else {"mlflow_run_id": mlflow_run_id}
        with self._database.transaction() as connection:
            _require_run(connection, run_id)
            connection.execute(sa.update(RUNS).where(RUNS.c.run_id == run_id).values(values))

    def record_policies(self, run_id: str, policies: Mapping[str, str], policies_sha256: str) -> None:
        """Record a run's policy files (name to SHA-256) and `SealedRun.sha256`, replacing earlier ones.

        Raises:
            StorageError: if the run has not begun.
            ValueError: if a file name is not one of the policy library.
        """
        rows = []
        for file, sha256 in policies.items():
            fold, seed = fold_and_seed(file)
            rows.append({"run_id": run_id, "file": file, "sha256": sha256, "fold": fold, "seed": seed})
        with self._database.transaction() as connection:
            _require_run(connection, run_id)
            connection.execute(sa.delete(POLICIES).where(POLICIES.c.run_id == run_id))
            if rows:
                connection.execute(sa.insert(POLICIES), rows)
            update = sa.update(RUNS).where(RUNS.c.run_id == run_id).values(policies_sha256=policies_sha256)
            connection.execute(update)

    def close_interrupted(self, dead_launchers: Iterable[str] = (), reason: str | None = None) -> list[str]:
        """Mark as interrupted the runs whose process or launcher is dead, and return their ids.

        Only processes on this machine can be checked. A run launched by Dagster ends with its launcher rather than
        with its process, since every Dagster step has a process of its own.

        Args:
            dead_launchers: ids of Dagster runs that have ended.
            reason: message for the runs of these launchers; by default their end alone.
        """
        dead, closed = set(dead_launchers), []
        for run in self._read_runs(RUNS.c.status == "running"):
            message = reason if reason and run.dagster_run_id in dead else death_reason(run, dead)
            if message is None:
                continue
            same = (RUNS.c.run_id == run.run_id, RUNS.c.status == "running", RUNS.c.attempts == run.attempts)
            values = {"status": "interrupted", "message": message, "finished_at": datetime.now(UTC)}
            with self._database.transaction() as connection:  # no update if the run began again meanwhile
                if connection.execute(sa.update(RUNS).where(*same).values(values)).rowcount:
                    closed.append(run.run_id)
        return closed

    def close_running(self, reason: str) -> list[str]:
        """Mark the running runs of a copied home as interrupted, and return their ids."""
        running = [run.run_id for run in self._read_runs(RUNS.c.status == "running")]
        for run_id in running:
            self.finish(run_id, "interrupted", message=reason)
        return running

    def open_look(self, window: SealedWindow, session_id: str, spec_hash: str, count_looks: CountLooks) -> int:
        """Record that a search session looks at a sealed window, and return the number of the look.

        A session looks once: called again, it keeps its number, and its window grows with the market.

        Args:
            window: that is read.
            session_id: of the session.
            spec_hash: of the configuration that is tested.
            count_looks: number of the earlier looks, by their windows, that precede this one.
        """
        with self._database.transaction() as connection:
            return open_look(connection, window, session_id, spec_hash, count_looks)

    def find_look(self, session_id: str) -> int | None:
        """Number of the look of a search session; None if it has not looked."""
        with self._database.connection() as connection:
            return find_look(connection, session_id)

    def sealed_windows(self) -> list[SealedWindow]:
        """Sealed windows of all looks."""
        with self._database.connection() as connection:
            return read_sealed_windows(connection)

    def run(self, run_id: str) -> LedgerRun:
        """Read a run.

        Raises:
            StorageError: if the run has not begun.
        """
        with self._database.connection() as connection:
            _require_run(connection, run_id)
        return self._read_runs(RUNS.c.run_id == run_id)[0]

    def find_run(self, prefix: str) -> LedgerRun:
        """Find the run whose id begins with a prefix.

        Raises:
            NotFoundError: if no run or several runs match.
        """
        found = self._read_runs(RUNS.c.run_id.startswith(prefix, autoescape=True)) if prefix else []
        if not found:
            raise NotFoundError(f"no run's id begins with {prefix!r}; `nvtrader runs` lists them")
        if len(found) > 1:
            ids = ", ".join(run.run_id for run in found)
            raise NotFoundError(f"{len(found)} runs begin with {prefix!r} ({ids}); give more of the id")
        return found[0]

    def runs(self, *, with_deleted: bool = False) -> pl.DataFrame:
        """Runs, the one started last first."""
        query = sa.select(RUNS) if with_deleted else sa.select(RUNS).where(RUNS.c.deleted_at.is_(None))
        return self._frame(RUNS, query.order_by(RUNS.c.started_at.desc(), RUNS.c.run_id))

    def deleted_ids(self) -> list[str]:
        """Ids of the deleted runs."""
        query = sa.select(RUNS.c.run_id).where(RUNS.c.deleted_at.is_not(None)).order_by(RUNS.c.run_id)
        with self._database.connection() as connection:
            return list(connection.execute(query).scalars())

    def mark_deleted(self, run_id: str) -> LedgerRun:
        """Mark a run as deleted, once, and return its row, which stays.

        Raises:
            StorageError: if the run has not begun, or is running.
        """
        with self._database.transaction() as connection:
            _require_run(connection, run_id)
            idle = (RUNS.c.run_id == run_id, RUNS.c.status != "running")
            first = sa.func.coalesce(RUNS.c.deleted_at, datetime.now(UTC))
            if not connection.execute(sa.update(RUNS).where(*idle).values(deleted_at=first)).rowcount:
                raise StorageError(f"run {run_id} is running; stop it before it is deleted")
        return self.run(run_id)

    def policies(self, run_id: str) -> pl.DataFrame:
        """Policy files of a run, sorted by fold and seed."""
        query = sa.select(POLICIES).where(POLICIES.c.run_id == run_id).order_by(POLICIES.c.fold, POLICIES.c.seed)
        return self._frame(POLICIES, query)

    def events(self, run_id: str) -> pl.DataFrame:
        """Events of a run, oldest first."""
        return self._frame(EVENTS, sa.select(EVENTS).where(EVENTS.c.run_id == run_id).order_by(EVENTS.c.id))

    def task_events(self, task_id: str, after: int = 0) -> pl.DataFrame:
        """Events of an execution with an id above `after`, oldest first."""
        query = sa.select(EVENTS).where(EVENTS.c.id > after, EVENTS.c.task_id == task_id).order_by(EVENTS.c.id)
        return self._frame(EVENTS, query)

    def trained_keys(self, run_id: str) -> set[tuple[int, int]]:
        """Folds and seeds whose training has ended, by the events of a run."""
        ended = (pl.col("stage") == "train.checkpoint") & pl.col("timesteps").is_not_null()
        return set(self.events(run_id).filter(ended).select("fold", "seed").iter_rows())

    def tables(self) -> dict[str, pl.DataFrame]:
        """Whole tables by name."""
        return {table.name: self._frame(table, sa.select(table)) for table in TABLES}

    def _read_runs(self, where: sa.ColumnElement[bool]) -> list[LedgerRun]:
        with self._database.connection() as connection:
            rows = connection.execute(sa.select(RUNS).where(where).order_by(RUNS.c.run_id)).mappings().all()
        return [LedgerRun.read({**row}) for row in rows]

    def _insert_version(self, connection: sa.Connection, spec: ExperimentSpec, parent: str | None) -> None:
        now = datetime.now(UTC)
        newest = sa.select(VERSIONS.c.spec_hash).where(VERSIONS.c.name == spec.name)
        before = connection.execute(newest.order_by(VERSIONS.c.created_at.desc()).limit(1)).scalar()
        if parent is not None:
            before = _registered_hash(connection, parent)
            if before is None:
                raise StorageError(f"experiment {parent}, the parent of {spec.partition_key}, is not registered")
        connection.execute(
            _insert_into(connection, SPECS).values(name=spec.name, created_at=now).on_conflict_do_nothing()
        )
        version = {"spec_hash": spec.spec_hash, "partition_key": spec.partition_key, "name": spec.name}
        values = {**version, "content": canonical_json(spec), "parent_hash": before, "created_at": now}
        connection.execute(_insert_into(connection, VERSIONS).values(values).on_conflict_do_nothing())

    def _frame(self, table: sa.Table, query: sa.Select[Any]) -> pl.DataFrame:
        with self._database.connection() as connection:
            rows = connection.execute(query).all()
        return pl.DataFrame([tuple(row) for row in rows], schema=polars_schema(table), orient="row")


def _registered_hash(connection: sa.Connection, partition_key: str) -> str | None:
    query = sa.select(VERSIONS.c.spec_hash).where(VERSIONS.c.partition_key == partition_key)
    return connection.execute(query).scalar()


def _insert_into(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Insert statement of the dialect, which offers ON CONFLICT."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def _require_run(connection: sa.Connection, run_id: str) -> None:
    if connection.execute(sa.select(RUNS.c.run_id).where(RUNS.c.run_id == run_id)).scalar() is None:
        raise StorageError(f"the ledger has no run {run_id}; begin it first")


def _running_row(row: RunRow) -> dict[str, Any]:
    """Values of a run that this process begins."""
    pid, started_at = this_process()
    given = row.model_dump(exclude={"snapshot_ids", "seeds"})
    return {
        **given,
        "snapshot_ids": to_json(row.snapshot_ids),
        "seeds": to_json(row.seeds),
        "status": "running",
        "host": host_name(),
        "pid": pid,
        "process_started_at": started_at,
        "finished_at": None,
        "message": None,
        "deleted_at": None,
    }


def death_reason(run: LedgerRun, dead_launchers: Collection[str] = ()) -> str | None:
    """Reason why a run cannot be running any more, or None if it may be."""
    if run.dagster_run_id in dead_launchers:
        return f"the Dagster run {run.dagster_run_id} ended before it did"
    if run.dagster_run_id is None and run.host == host_name() and not is_alive(run.pid, run.process_started_at):
        return f"its process {run.pid} on {run.host} ended without reporting"
    return None


def _parse_spec(partition_key: str, spec_hash: str, content: str) -> ExperimentSpec:
    digest = hashlib.sha256(content.encode()).hexdigest()
    if digest != spec_hash or not partition_key.endswith(f"@{short_id(digest)}"):
        raise StorageError(
            f"version {partition_key} is damaged: its content has the hash {digest}, not {spec_hash}; restore the "
            "ledger from a backup"
        )
    from nvtrader_pipelines.experiments.spec import ExperimentSpec  # a third of a second; lists of runs need none

    try:
        spec = ExperimentSpec.model_validate_json(content)
    except ValidationError as error:
        raise CodeMismatchError(
            f"version {partition_key} is refused by this code: {explain(error, ExperimentSpec)}; run it with the code "
            "and the packages that registered it, or change its YAML and run the new version"
        ) from error
    if spec.spec_hash != spec_hash:
        raise CodeMismatchError(
            f"version {partition_key} is {spec.partition_key} with the defaults of this code; run it with the "
            "code that registered it, or register its YAML again and run the new version"
        )
    return spec
