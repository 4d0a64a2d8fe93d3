"""Tables of experiments: files and registered versions, and differences between two."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.specs import document_differences, read_experiment, read_experiments
from nvtrader_pipelines.storage.store import Store

LIST_SCHEMA = {
    "partition_key": pl.String,
    "in_files": pl.Boolean,
    "agent": pl.String,
    "design": pl.String,
    "registered_at": pl.Datetime("us", "UTC"),
    "runs": pl.UInt32,
    "last_status": pl.String,
}


def list_experiments(store: Store) -> tuple[pl.DataFrame, list[str]]:
    """List registered versions and files, newest first by name, with problems of files."""
    found = read_experiments(store.home)
    in_files = {each.partition_key: each for spec in found.specs for each in (spec, *spec.variants())}
    rows = [
        _list_row(row["partition_key"], json.loads(row["content"]), row["created_at"], in_files)
        for row in store.ledger.versions().iter_rows(named=True)
    ]
    known = {row[0] for row in rows}
    rows += [
        _list_row(key, spec.model_dump(mode="json"), None, in_files)
        for key, spec in in_files.items()
        if key not in known
    ]
    schema = {name: LIST_SCHEMA[name] for name in list(LIST_SCHEMA)[:5]}
    runs = store.ledger.runs().sort("started_at").group_by("partition_key")
    counted = runs.agg(pl.len().alias("runs"), pl.col("status").last().alias("last_status"))
    table = pl.DataFrame(rows, schema=schema, orient="row").join(counted, on="partition_key", how="left")
    ordered = table.sort(
        pl.col("partition_key").str.split("@").list.first(), "registered_at", descending=[False, True], nulls_last=False
    )
    return ordered.with_columns(pl.col("runs").fill_null(0)), list(found.problems.values())


def _list_row(key: str, spec: dict[str, Any], at: object, in_files: dict[str, Any]) -> tuple[Any, ...]:
    design = spec.get("design", {}).get("kind")
    return key, key in in_files, spec.get("agent", {}).get("kind"), design, at


@dataclass(frozen=True)
class ExperimentComparison:
    """Names of two experiments, and the fields in which they differ: field, left, right."""

    left: str | None  # None if there is no earlier version
    right: str
    fields: pl.DataFrame


def compare_experiments(store: Store, left: str, right: str | None) -> ExperimentComparison:
    """Compare two experiments, or one with the version registered before it.

    Raises:
        StorageError: if a name is unknown, or a file holds no valid experiment.
    """
    own = _document(store, left)
    if right is not None:
        return ExperimentComparison(left, right, document_differences(own, _document(store, right)))
    key = left if "@" in left else read_named_experiment(store.home, left).partition_key
    before = _version_before(store.ledger, key)
    earlier = own if before is None else version_content(store.ledger, before)
    return ExperimentComparison(before, left, document_differences(earlier, own))


def _version_before(ledger: Ledger, key: str) -> str | None:
    """Find the parent of a registered version, or the newest version of an unregistered name."""
    versions = ledger.versions()
    own = versions.filter(pl.col("partition_key") == key)
    parents = pl.col("spec_hash").is_in(own["parent_hash"].implode())
    before = versions.filter(parents if len(own) else pl.col("name") == key.partition("@")[0])
    return before["partition_key"][0] if len(before) else None


def _document(store: Store, name: str) -> dict[str, Any]:
    """Content of a version (name@hash8), a YAML file, or an experiment of data/experiments."""
    if "@" in name:
        return version_content(store.ledger, name)
    return read_named_experiment(store.home, name).model_dump(mode="json")


def read_named_experiment(home: Home, name: str) -> Any:
    """Read an experiment from a YAML file, or by its name in data/experiments.

    Raises:
        StorageError: if it does not exist or is not valid.
    """
    if name.endswith((".yaml", ".yml")):
        return read_experiment(Path(name))
    found = read_experiments(home)
    named = [each for spec in found.specs for each in (*spec.variants(), spec) if each.name == name]
    if not named:
        known = ", ".join(spec.name for spec in found.specs) or "none"
        near = suggest(name, [spec.name for spec in found.specs])
        raise StorageError(
            f"no experiment is named {name!r}; there are: {known}; or name a version or a YAML file{near}"
        )
    return named[0]
