"""Ledger of a home: immutable versions, runs, their policies and their events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import polars as pl
import sqlalchemy as sa

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.sealed_run import fold_and_seed
from nvtrader_pipelines.experiments.versioned import Versioned
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import Database
from nvtrader_pipelines.storage.ledger.look_rows import (
    CountLooks,
    SealedWindow,
    find_look,
    open_look,
    read_sealed_windows,
)
from nvtrader_pipelines.storage.ledger.run_rows import (
    Ending,
    LedgerRun,
    RunRow,
    death_reason,
    metrics_to_json,
    running_row,
)
from nvtrader_pipelines.storage.ledger.schema import (
    ANNOTATIONS,
    EVENTS,
    POLICIES,
    RUNS,
    SPECS,
    TABLES,
    VERSIONS,
    polars_schema,
)
from nvtrader_pipelines.storage.ledger.version_rows import insert_into, insert_version, parse_spec, registered_hash

if TYPE_CHECKING:
    from nvtrader_pipelines.experiments.spec import ExperimentSpec
    from nvtrader_pipelines.experiments.world_experiment import WorldExperiment

# status of a run, or `deleted`
SHOWN_STATUS = pl.when(pl.col("deleted_at").is_null()).then("status").otherwise(pl.lit("deleted")).alias("status")


class Ledger:
    """Ledger of a home. Opening takes milliseconds; the connections close with the object."""

    def __init__(self, home: Home, database: Database) -> None:
        self._home, self._database = home, database

    @classmethod
    def open(cls, home: Home) -> Self:
        """Open the ledger at $NVTRADER_LEDGER_URL or `database_url`, else in `warehouse/ledger.db`.

        Raises:
            StorageError: if it cannot be reached, or has another revision.
        """
        return cls(home, Database.open(home))

    def register(self, spec: Versioned, parent: str | None = None) -> str:
        """Register a version and return its partition key; the same content is stored once.

        The parent is a partition key; by default that of the newest version of the same name.

        Raises:
            StorageError: if the parent is not registered, or another spec has the same partition key.
            NameTakenError: if a version of another kind has the name.
        """
        with self._database.connection() as connection:
            registered = registered_hash(connection, spec.partition_key)
        if registered is None:
            with self._database.transaction() as connection:
                insert_version(connection, spec, parent)
                registered = registered_hash(connection, spec.partition_key)
        if registered != spec.spec_hash:
            raise StorageError(
                f"{spec.partition_key} is already registered with hash {registered}, but the new experiment has hash "
                f"{spec.spec_hash}; change its description, which changes the hash"
            )
        return spec.partition_key

    def read(self, partition_key: str) -> ExperimentSpec:
        """Read a registered version.

        Raises:
            StorageError: if the version is not registered or is damaged.
            CodeMismatchError: if this code refuses the version or gives it another hash.
        """
        from nvtrader_pipelines.experiments.spec import ExperimentSpec  # a third of a second; lists of runs need none

        return parse_spec(ExperimentSpec, partition_key, *self._version(partition_key))

    def read_world(self, partition_key: str) -> WorldExperiment:
        """Read a registered version of a world, as `read` does."""
        from nvtrader_pipelines.experiments.world_experiment import WorldExperiment

        return parse_spec(WorldExperiment, partition_key, *self._version(partition_key))

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

    def versions(self, *, with_worlds: bool = False) -> pl.DataFrame:
        """Registered versions of experiments, and those of worlds, newest first."""
        query = sa.select(VERSIONS) if with_worlds else sa.select(VERSIONS).where(VERSIONS.c.kind == "experiment")
        return self._frame(VERSIONS, query.order_by(VERSIONS.c.created_at.desc(), VERSIONS.c.name))

    def archive(self, names: Iterable[str]) -> None:
        """Archive experiments by name, registered or not."""
        now = datetime.now(UTC)
        with self._database.transaction() as connection:
            for name in names:
                insert = insert_into(connection, SPECS).values(name=name, created_at=now, archived_at=now)
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
        values = running_row(row)
        updates = {name: value for name, value in values.items() if name not in {"run_id", "spec_hash"}}
        with self._database.transaction() as connection:
            known = connection.execute(sa.select(RUNS.c.spec_hash).where(RUNS.c.run_id == row.run_id)).scalar()
            if known is not None and known != row.spec_hash:
                raise StorageError(f"run {row.run_id} belongs to version {known}, not {row.spec_hash}")
            if registered_hash(connection, row.partition_key) != row.spec_hash:
                raise StorageError(f"run {row.run_id} needs {row.partition_key} to be registered first")
            insert = insert_into(connection, RUNS).values(**values, attempts=1)
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
        with its process, since every Dagster step has a process of its own; its message is `reason`, by default its
        launcher's end.
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

        A session looks once: called again, it keeps its number, and its window grows with the market. `count_looks`
        counts the earlier looks, by their windows, that precede this one.
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
        runs = self._read_runs(RUNS.c.run_id.startswith(prefix, autoescape=True)) if prefix else []
        if not runs:
            raise NotFoundError(f"no run's id begins with {prefix!r}; `nvtrader runs` lists them")
        if len(runs) > 1:
            ids = ", ".join(run.run_id for run in runs)
            raise NotFoundError(f"{len(runs)} runs begin with {prefix!r} ({ids}); give more of the id")
        return runs[0]

    def runs(self, *, with_deleted: bool = False, with_worlds: bool = False) -> pl.DataFrame:
        """Runs of experiments, and those of worlds, the one started last first."""
        query = sa.select(RUNS) if with_deleted else sa.select(RUNS).where(RUNS.c.deleted_at.is_(None))
        query = query if with_worlds else query.where(RUNS.c.kind != "world")
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

    def annotate(self, run_id: str, fields: Mapping[str, str]) -> None:
        """Record tags, a note or both of a run in place of earlier ones.

        Raises:
            StorageError: if the run has not begun.
        """
        with self._database.transaction() as connection:
            _require_run(connection, run_id)
            insert = insert_into(connection, ANNOTATIONS).values({"run_id": run_id, "tags": "", "note": "", **fields})
            if fields:
                connection.execute(insert.on_conflict_do_update(index_elements=["run_id"], set_=dict(fields)))

    def annotations(self) -> pl.DataFrame:
        """Tags and notes of the annotated runs."""
        return self._frame(ANNOTATIONS, sa.select(ANNOTATIONS))

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

    def _frame(self, table: sa.Table, query: sa.Select[Any]) -> pl.DataFrame:
        with self._database.connection() as connection:
            rows = connection.execute(query).all()
        return pl.DataFrame([tuple(row) for row in rows], schema=polars_schema(table), orient="row")


def _require_run(connection: sa.Connection, run_id: str) -> None:
    if connection.execute(sa.select(RUNS.c.run_id).where(RUNS.c.run_id == run_id)).scalar() is None:
        raise StorageError(f"the ledger has no run {run_id}; begin it first")
