"""Versions of experiments as documents: read even where this code would refuse them, and compared."""

import json
from typing import Any

import polars as pl

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.specs import differences


def content(ledger: Ledger, partition_key: str) -> dict[str, Any]:
    """The document of a version, as it was registered.

    Raises:
        StorageError: if it is not registered.
    """
    return json.loads(_row(ledger, "partition_key", partition_key)["content"])


def changes(ledger: Ledger, partition_key: str) -> pl.DataFrame:
    """Fields in which a version differs from the one it was made from: field, left (before), right (after).

    Raises:
        StorageError: if it is not registered.
    """
    version = _row(ledger, "partition_key", partition_key)
    own = json.loads(version["content"])
    before = own if version["parent_hash"] is None else _row(ledger, "spec_hash", version["parent_hash"])["content"]
    return differences(json.loads(before) if isinstance(before, str) else before, own)


def _row(ledger: Ledger, column: str, value: str) -> dict[str, Any]:
    rows = ledger.versions().filter(pl.col(column) == value)
    if rows.is_empty():
        raise StorageError(f"version {value} is not registered; `nvtrader experiments list` shows those that are")
    return rows.row(0, named=True)
