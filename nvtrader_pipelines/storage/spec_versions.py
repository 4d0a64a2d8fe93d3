"""Registered versions as plain documents, readable even if this code refuses the spec."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.experiments.designs import leaves
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger


def agents_by_seed(content: Mapping[str, Any]) -> dict[int, str]:
    """Kind of the agent that trains each seed, by a version's content, which this code may refuse."""
    agents = content["agent"].get("members", [content["agent"]])
    return {seed: agents[position % len(agents)]["kind"] for position, seed in enumerate(content["seeds"])}


def version_content(ledger: Ledger, partition_key: str, *, with_worlds: bool = False) -> dict[str, Any]:
    """Document of a version of an experiment, or of a world, as registered.

    Raises:
        StorageError: if the version is not registered.
    """
    return json.loads(_row(ledger, "partition_key", partition_key, with_worlds=with_worlds)["content"])


def version_changes(ledger: Ledger, partition_key: str) -> pl.DataFrame:
    """Fields in which a version (right) differs from its parent (left), by dotted path.

    Raises:
        StorageError: if the version is not registered.
    """
    version = _row(ledger, "partition_key", partition_key)
    own = json.loads(version["content"])
    before = own if version["parent_hash"] is None else _row(ledger, "spec_hash", version["parent_hash"])["content"]
    return document_differences(json.loads(before) if isinstance(before, str) else before, own)


def _row(ledger: Ledger, column: str, value: str, *, with_worlds: bool = False) -> dict[str, Any]:
    versions = ledger.versions(with_worlds=with_worlds)
    rows = versions.filter(pl.col(column) == value)
    if rows.is_empty():
        near = suggest(value, versions[column].to_list()) or ";"
        raise StorageError(
            f"version {value} is not registered{near} `nvtrader experiments list` shows the registered ones"
        )
    return rows.row(0, named=True)


def document_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> pl.DataFrame:
    """List the fields in which two documents differ, by dotted path; null for a missing one."""
    first, second = (
        {path: value if isinstance(value, str) else json.dumps(value) for path, value in leaves(dict(side))}
        for side in (left, right)
    )
    rows = [(path, first.get(path), second.get(path)) for path in dict.fromkeys([*first, *second])]
    rows = [row for row in rows if row[1] != row[2]]
    return pl.DataFrame(rows, schema=dict.fromkeys(("field", "left", "right"), pl.String), orient="row")
