"""The ledger of one home: versions that never change, runs, their policies and their events."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Self

import polars as pl
import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.dialects import postgresql, sqlite

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.sealed_run import fold_and_seed
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.errors import OtherCodeError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import Database
from nvtrader_pipelines.storage.ledger.processes import host, is_alive, this_process
from nvtrader_pipelines.storage.ledger.rows import Ending, LedgerRun, RunRow, as_json, metrics_json
from nvtrader_pipelines.storage.ledger.schema import EVENTS, POLICIES, RUNS, SPECS, TABLES, VERSIONS, polars_schema
from nvtrader_pipelines.storage.specs import explained


class Ledger:
    """Open it where it is needed; opening costs milliseconds, and its connections end with it."""

    def __init__(self, home: Home, database: Database) -> None:
        self._home, self._database = home, database

    @classmethod
    def open(cls, home: Home) -> Self:
        """The ledger of a home, in the database that $NVTRADER_LEDGER_URL names, else in `warehouse/ledger.db`.

        Raises:
            StorageError: if it cannot be reached, or has another revision.
        """
        return cls(home, Database.open(home))

    def register(self, spec: ExperimentSpec, parent: str | None = None) -> str:
        """Keep a version and return its partition key; the same content is kept once.

        Args:
            spec: what to keep.
            parent: partition key of the version it was made from; without one, the newest of the same name.

        Raises:
            StorageError: if the parent is not registered, or another spec has the same partition key.
        """
        with self._database.reading() as connection:
            found = _hash_of(connection, spec.partition_key)
        if found is None:
            with self._database.writing() as connection:
                self._insert(connection, spec, parent)
                found = _hash_of(connection, spec.partition_key)
        if found != spec.spec_hash:
            raise StorageError(
                f"{spec.partition_key} is already another experiment, of hash {found}, and this one's is "
                f"{spec.spec_hash}; change the description of the new one, which gives it another hash"
            )
        return spec.partition_key

    def read(self, partition_key: str) -> ExperimentSpec:
        """A registered version.

        Raises:
            StorageError: if it is not registered or is damaged.
            OtherCodeError: if it means something else to this code.
        """
        query = sa.select(VERSIONS.c.spec_hash, VERSIONS.c.content).where(VERSIONS.c.partition_key == partition_key)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise StorageError(
                f"experiment {partition_key} is not registered; put its YAML into {self._home.experiments} "
                "and let the experiment_file sensor or `nvtrader materialize` register it"
            )
        return _spec(partition_key, row.spec_hash, row.content)

    def versions(self) -> pl.DataFrame:
        """Every version, newest first."""
        return self._frame(VERSIONS, sa.select(VERSIONS).order_by(VERSIONS.c.created_at.desc(), VERSIONS.c.name))

    def begin(self, row: RunRow) -> None:
        """Open a run for this process; begun again, it has one more attempt, unless this execution of it still runs.

        Raises:
            StorageError: if its version is not registered, or the run belongs to another version.
        """
        values = _begun(row)
        again = {name: value for name, value in values.items() if name not in {"run_id", "spec_hash"}}
        with self._database.writing() as connection:
            known = connection.execute(sa.select(RUNS.c.spec_hash).where(RUNS.c.run_id == row.run_id)).scalar()
            if known is not None and known != row.spec_hash:
                raise StorageError(f"run {row.run_id} is of version {known}, not {row.spec_hash}; give it another id")
            if _hash_of(connection, row.partition_key) != row.spec_hash:
                raise StorageError(f"run {row.run_id} is of {row.partition_key}, which is not registered; register it")
            insert = _insertion(connection, RUNS).values(**values, attempts=1)
            goes_on = sa.and_(RUNS.c.task_id == row.task_id, RUNS.c.status == "running")
            own = {
                "attempts": RUNS.c.attempts + sa.case((goes_on, 0), else_=1),
                "started_at": sa.case((goes_on, RUNS.c.started_at), else_=values["started_at"]),
            }
            connection.execute(insert.on_conflict_do_update(index_elements=["run_id"], set_={**again, **own}))

    def note(self, progress: Progress) -> None:
        """Keep an event of a run.

        Raises:
            StorageError: if the run was never begun.
        """
        values = progress.model_dump(exclude={"total_timesteps", "share", "metrics"})
        with self._database.writing() as connection:
            _require_run(connection, progress.run_id)
            connection.execute(sa.insert(EVENTS).values(**values, metrics=metrics_json(progress.metrics)))

    def finish(
        self,
        run_id: str,
        status: Ending,
        *,
        metrics: Mapping[str, float] | None = None,
        mlflow_run_id: str | None = None,
        message: str | None = None,
    ) -> None:
        """Close a run; metrics and the MLflow run stay as they are where none are given.

        Raises:
            StorageError: if the run was never begun.
        """
        values = {"status": status, "message": message, "finished_at": datetime.now(UTC)}
        values |= {} if metrics is None else {"metrics": metrics_json(metrics)}
        values |= {} if mlflow_run_id is None else {"mlflow_run_id": mlflow_run_id}
        with self._database.writing() as connection:
            _require_run(connection, run_id)
            connection.execute(sa.update(RUNS).where(RUNS.c.run_id == run_id).values(values))

    def keep_policies(self, run_id: str, policies: Mapping[str, str], policies_sha256: str) -> None:
        """Keep which policy files a run uses and the digest of its manifest, in place of those known before.

        Args:
            run_id: the run.
            policies: file name to SHA-256.
            policies_sha256: of all that decides beside them too; `SealedRun.sha256`.

        Raises:
            StorageError: if the run was never begun.
            ValueError: if a file is not named as the policy library names them.
        """
        rows = []
        for file, sha256 in policies.items():
            fold, seed = fold_and_seed(file)
            rows.append({"run_id": run_id, "file": file, "sha256": sha256, "fold": fold, "seed": seed})
        with self._database.writing() as connection:
            _require_run(connection, run_id)
            connection.execute(sa.delete(POLICIES).where(POLICIES.c.run_id == run_id))
            if rows:
                connection.execute(sa.insert(POLICIES), rows)
            kept = sa.update(RUNS).where(RUNS.c.run_id == run_id).values(policies_sha256=policies_sha256)
            connection.execute(kept)

    def close_interrupted(self, dead_launchers: Iterable[str] = (), why: str | None = None) -> list[str]:
        """Mark as interrupted the runs whose process or launcher is dead, and return their ids.

        A process is known to be dead on its own machine; `dead_launchers` are ids of Dagster runs that have ended,
        and `why` says more of their end. The steps of a Dagster run have processes of their own, so what Dagster
        launched ends with its launcher only.
        """
        gone, closed = set(dead_launchers), []
        for run in self._found(RUNS.c.status == "running"):
            message = why if why and run.dagster_run_id in gone else _why_dead(run, gone)
            if message is None:
                continue
            same = (RUNS.c.run_id == run.run_id, RUNS.c.status == "running", RUNS.c.attempts == run.attempts)
            values = {"status": "interrupted", "message": message, "finished_at": datetime.now(UTC)}
            with self._database.writing() as connection:  # unless it was begun again meanwhile
                if connection.execute(sa.update(RUNS).where(*same).values(values)).rowcount:
                    closed.append(run.run_id)
        return closed

    def run(self, run_id: str) -> LedgerRun:
        """One run.

        Raises:
            StorageError: if it was never begun.
        """
        with self._database.reading() as connection:
            _require_run(connection, run_id)
        return self._found(RUNS.c.run_id == run_id)[0]

    def find_run(self, prefix: str) -> LedgerRun:
        """The one run whose id begins so.

        Raises:
            StorageError: if there is none, or several.
        """
        found = self._found(RUNS.c.run_id.startswith(prefix, autoescape=True))
        if not found:
            raise StorageError(f"no run's id begins with {prefix!r}; `nvtrader runs` lists them")
        if len(found) > 1:
            ids = ", ".join(run.run_id for run in found)
            raise StorageError(f"{len(found)} runs begin with {prefix!r} ({ids}); give more of the id")
        return found[0]

    def runs(self) -> pl.DataFrame:
        """Every run, the last begun first."""
        return self._frame(RUNS, sa.select(RUNS).order_by(RUNS.c.started_at.desc(), RUNS.c.run_id))

    def policies(self, run_id: str) -> pl.DataFrame:
        """The policy files of a run, by fold and seed."""
        query = sa.select(POLICIES).where(POLICIES.c.run_id == run_id).order_by(POLICIES.c.fold, POLICIES.c.seed)
        return self._frame(POLICIES, query)

    def events(self, run_id: str) -> pl.DataFrame:
        """What happened in a run, in order."""
        return self._frame(EVENTS, sa.select(EVENTS).where(EVENTS.c.run_id == run_id).order_by(EVENTS.c.id))

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table by its name, whole."""
        return {table.name: self._frame(table, sa.select(table)) for table in TABLES}

    def _found(self, where: sa.ColumnElement[bool]) -> list[LedgerRun]:
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(RUNS).where(where).order_by(RUNS.c.run_id)).mappings().all()
        return [LedgerRun.read({**row}) for row in rows]

    def _insert(self, connection: sa.Connection, spec: ExperimentSpec, parent: str | None) -> None:
        now = datetime.now(UTC)
        newest = sa.select(VERSIONS.c.spec_hash).where(VERSIONS.c.name == spec.name)
        before = connection.execute(newest.order_by(VERSIONS.c.created_at.desc()).limit(1)).scalar()
        if parent is not None:
            before = _hash_of(connection, parent)
            if before is None:
                raise StorageError(f"experiment {parent}, of which {spec.partition_key} was made, is not registered")
        connection.execute(
            _insertion(connection, SPECS).values(name=spec.name, created_at=now).on_conflict_do_nothing()
        )
        version = {"spec_hash": spec.spec_hash, "partition_key": spec.partition_key, "name": spec.name}
        values = {**version, "content": canonical_json(spec), "parent_hash": before, "created_at": now}
        connection.execute(_insertion(connection, VERSIONS).values(values).on_conflict_do_nothing())

    def _frame(self, table: sa.Table, query: sa.Select[Any]) -> pl.DataFrame:
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return pl.DataFrame([tuple(row) for row in rows], schema=polars_schema(table), orient="row")


def _hash_of(connection: sa.Connection, partition_key: str) -> str | None:
    query = sa.select(VERSIONS.c.spec_hash).where(VERSIONS.c.partition_key == partition_key)
    return connection.execute(query).scalar()


def _insertion(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insertion that knows what to do with a row that is there already."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def _require_run(connection: sa.Connection, run_id: str) -> None:
    if connection.execute(sa.select(RUNS.c.run_id).where(RUNS.c.run_id == run_id)).scalar() is None:
        raise StorageError(f"the ledger has no run {run_id}; begin it first")


def _begun(row: RunRow) -> dict[str, Any]:
    """A row of this process, as it runs."""
    pid, began = this_process()
    known = row.model_dump(exclude={"snapshot_ids", "seeds"})
    return {
        **known,
        "snapshot_ids": as_json(row.snapshot_ids),
        "seeds": as_json(row.seeds),
        "status": "running",
        "host": host(),
        "pid": pid,
        "process_started_at": began,
        "finished_at": None,
        "message": None,
    }


def _why_dead(run: LedgerRun, dead_launchers: Collection[str]) -> str | None:
    """Why nobody works on a run any more; None where somebody may."""
    if run.dagster_run_id in dead_launchers:
        return f"the Dagster run {run.dagster_run_id} ended before it did"
    if run.dagster_run_id is None and run.host == host() and not is_alive(run.pid, run.process_started_at):
        return f"its process {run.pid} on {run.host} ended without a word"
    return None


def _spec(partition_key: str, spec_hash: str, content: str) -> ExperimentSpec:
    digest = hashlib.sha256(content.encode()).hexdigest()
    if digest != spec_hash or not partition_key.endswith(f"@{short_id(digest)}"):
        raise StorageError(
            f"version {partition_key} is damaged: its content has the hash {digest}, not {spec_hash}; restore the "
            "ledger from a backup"
        )
    try:
        spec = ExperimentSpec.model_validate_json(content)
    except ValidationError as error:
        raise OtherCodeError(
            f"version {partition_key} is refused by this code: {explained(error)}; run it with the code that "
            "registered it, or change its YAML and run the new version"
        ) from error
    if spec.spec_hash != spec_hash:
        raise OtherCodeError(
            f"version {partition_key} would be {spec.partition_key} with the defaults of this code; run it with the "
            "code that registered it, or register its YAML again and run the new version"
        )
    return spec
