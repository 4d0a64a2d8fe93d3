"""The ledger of one home: versions that never change, runs, their policies and their events."""

import hashlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Self

import polars as pl
import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.dialects import postgresql, sqlite

from nvtrader_pipelines.components import canonical_json
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import Database
from nvtrader_pipelines.storage.ledger.schema import POLICIES, RUNS, SPECS, TABLES, VERSIONS, polars_schema
from nvtrader_pipelines.storage.specs import explained


class Ledger:
    """Open it where it is needed: it holds no connection."""

    def __init__(self, home: Home, database: Database) -> None:
        self._home, self._database = home, database

    @classmethod
    def open(cls, home: Home) -> Self:
        """The ledger of a home, in the database that $NVTRADER_LEDGER_URL names, else in `warehouse/ledger.db`.

        Raises:
            StorageError: if it cannot be reached, or newer code has written it.
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
                f"{spec.partition_key} is already another experiment: its hash is {found}, this one's {spec.spec_hash}; "
                "change the description of the new one, which gives it another hash"
            )
        return spec.partition_key

    def read(self, partition_key: str) -> ExperimentSpec:
        """A registered version.

        Raises:
            StorageError: if it is not registered, is damaged, or means something else to this code.
        """
        query = sa.select(VERSIONS.c.spec_hash, VERSIONS.c.content).where(VERSIONS.c.partition_key == partition_key)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise StorageError(
                f"experiment {partition_key} is not registered; put its YAML into {self._home.experiments} "
                "and let the experiment_file sensor or `nvtrader run` register it"
            )
        return _spec(partition_key, row.spec_hash, row.content)

    def versions(self) -> pl.DataFrame:
        """Every version, newest first."""
        return self._frame(VERSIONS, sa.select(VERSIONS).order_by(VERSIONS.c.created_at.desc(), VERSIONS.c.name))

    def _insert(self, connection: sa.Connection, spec: ExperimentSpec, parent: str | None) -> None:
        now = datetime.now(UTC)
        newest = sa.select(VERSIONS.c.spec_hash).where(VERSIONS.c.name == spec.name)
        before = connection.execute(newest.order_by(VERSIONS.c.created_at.desc()).limit(1)).scalar()
        if parent is not None:
            before = _hash_of(connection, parent)
            if before is None:
                raise StorageError(f"experiment {parent}, of which {spec.partition_key} was made, is not registered")
        connection.execute(_absent(connection, SPECS).values(name=spec.name, created_at=now))
        version = {"spec_hash": spec.spec_hash, "partition_key": spec.partition_key, "name": spec.name}
        values = {**version, "content": canonical_json(spec), "parent_hash": before, "created_at": now}
        connection.execute(_absent(connection, VERSIONS).values(values))

    def _frame(self, table: sa.Table, query: sa.Select[Any]) -> pl.DataFrame:
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return pl.DataFrame([tuple(row) for row in rows], schema=polars_schema(table), orient="row")


def _hash_of(connection: sa.Connection, partition_key: str) -> str | None:
    query = sa.select(VERSIONS.c.spec_hash).where(VERSIONS.c.partition_key == partition_key)
    return connection.execute(query).scalar()


def _absent(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insertion that does nothing where the row is there already."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    return dialect.insert(table).on_conflict_do_nothing()


def _spec(partition_key: str, spec_hash: str, content: str) -> ExperimentSpec:
    digest = hashlib.sha256(content.encode()).hexdigest()
    if digest != spec_hash or not partition_key.endswith(f"@{digest[:8]}"):
        raise StorageError(
            f"version {partition_key} is damaged: its content has the hash {digest}, not {spec_hash}; restore the "
            "ledger from a backup"
        )
    try:
        spec = ExperimentSpec.model_validate_json(content)
    except ValidationError as error:
        raise StorageError(
            f"version {partition_key} is refused by this code: {explained(error)}; run it with the code that "
            "registered it, or change its YAML and run the new version"
        ) from error
    if spec.spec_hash != spec_hash:
        raise StorageError(
            f"version {partition_key} would be {spec.partition_key} with the defaults of this code; run it with the "
            "code that registered it, or register its YAML again and run the new version"
        )
    return spec
