"""Versions of experiments as rows of the ledger."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TypeVar

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.dialects import postgresql, sqlite

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.experiments.versioned import Versioned
from nvtrader_pipelines.storage.errors import CodeMismatchError, NameTakenError, StorageError
from nvtrader_pipelines.storage.ledger.schema import SPECS, VERSIONS

Spec = TypeVar("Spec", bound=Versioned)


def registered_hash(connection: sa.Connection, partition_key: str) -> str | None:
    """Hash of a registered version; None if it is not registered."""
    query = sa.select(VERSIONS.c.spec_hash).where(VERSIONS.c.partition_key == partition_key)
    return connection.execute(query).scalar()


def insert_into(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Insert statement of the dialect, which offers ON CONFLICT."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def insert_version(connection: sa.Connection, spec: Versioned, parent: str | None) -> None:
    """Insert a version, and its name where that is new.

    Raises:
        StorageError: if the parent is not registered.
        NameTakenError: if the name is that of a version of another kind.
    """
    now = datetime.now(UTC)
    other = sa.select(VERSIONS.c.kind).where(VERSIONS.c.name == spec.name, VERSIONS.c.kind != spec.version_kind)
    if (kind := connection.execute(other.limit(1)).scalar()) is not None:
        raise NameTakenError(f"{spec.name} is already the name of a registered {kind}; choose another name")
    newest = sa.select(VERSIONS.c.spec_hash).where(VERSIONS.c.name == spec.name)
    before = connection.execute(newest.order_by(VERSIONS.c.created_at.desc()).limit(1)).scalar()
    if parent is not None:
        before = registered_hash(connection, parent)
        if before is None:
            raise StorageError(f"experiment {parent}, the parent of {spec.partition_key}, is not registered")
    connection.execute(insert_into(connection, SPECS).values(name=spec.name, created_at=now).on_conflict_do_nothing())
    version = {
        "spec_hash": spec.spec_hash,
        "partition_key": spec.partition_key,
        "name": spec.name,
        "kind": spec.version_kind,
    }
    values = {**version, "content": canonical_json(spec), "parent_hash": before, "created_at": now}
    connection.execute(insert_into(connection, VERSIONS).values(values).on_conflict_do_nothing())


def parse_spec(model: type[Spec], partition_key: str, spec_hash: str, content: str) -> Spec:
    """Parse the content of a version.

    Raises:
        StorageError: if it is damaged.
        CodeMismatchError: if this code refuses it or gives it another hash.
    """
    digest = hashlib.sha256(content.encode()).hexdigest()
    if digest != spec_hash or not partition_key.endswith(f"@{short_id(digest)}"):
        raise StorageError(
            f"version {partition_key} is damaged: its content has the hash {digest}, not {spec_hash}; restore the "
            "ledger from a backup"
        )
    try:
        spec = model.model_validate_json(content)
    except ValidationError as error:
        raise CodeMismatchError(
            f"version {partition_key} is refused by this code: {explain(error, model)}; run it with the code "
            "and the packages that registered it, or change its YAML and run the new version"
        ) from error
    if spec.spec_hash != spec_hash:
        raise CodeMismatchError(
            f"version {partition_key} is {spec.partition_key} with the defaults of this code; run it with the "
            "code that registered it, or register its YAML again and run the new version"
        )
    return spec
