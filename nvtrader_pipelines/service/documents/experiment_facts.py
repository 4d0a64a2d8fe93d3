"""What is known of experiments: their files, their registered versions, and how two of them differ."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.specs import document_differences, read_experiment, read_experiments
from nvtrader_pipelines.storage.store import Store

LISTED = {
    "partition_key": pl.String,
    "in_files": pl.Boolean,
    "agent": pl.String,
    "design": pl.String,
    "registered_at": pl.Datetime("us", "UTC"),
    "runs": pl.UInt32,
    "last_status": pl.String,
}


def listed_experiments(store: Store) -> tuple[pl.DataFrame, list[str]]:
    """A row per version that is registered or in a file, by name, newest first; and why files hold none."""
    found = read_experiments(store.home)
    in_files = {each.partition_key: each for spec in found.specs for each in (spec, *spec.variants())}
    rows = [
        _listed(row["partition_key"], json.loads(row["content"]), row["created_at"], in_files)
        for row in store.ledger.versions().iter_rows(named=True)
    ]
    known = {row[0] for row in rows}
    rows += [
        _listed(key, spec.model_dump(mode="json"), None, in_files) for key, spec in in_files.items() if key not in known
    ]
    schema = {name: LISTED[name] for name in list(LISTED)[:5]}
    runs = store.ledger.runs().sort("started_at").group_by("partition_key")
    counted = runs.agg(pl.len().alias("runs"), pl.col("status").last().alias("last_status"))
    table = pl.DataFrame(rows, schema=schema, orient="row").join(counted, on="partition_key", how="left")
    ordered = table.sort(
        pl.col("partition_key").str.split("@").list.first(), "registered_at", descending=[False, True], nulls_last=False
    )
    return ordered.with_columns(pl.col("runs").fill_null(0)), list(found.problems.values())


def _listed(key: str, spec: dict[str, Any], at: object, in_files: dict[str, Any]) -> tuple[Any, ...]:
    design = spec.get("design", {}).get("kind")
    return key, key in in_files, spec.get("agent", {}).get("kind"), design, at


@dataclass(frozen=True)
class Comparison:
    """Two experiments by what they are called, and the fields in which they differ: field, left, right."""

    left: str | None  # none where there is no version before
    right: str
    fields: pl.DataFrame


def compared_experiments(store: Store, left: str, right: str | None) -> Comparison:
    """Two experiments side by side; of one alone, what became of it since the version registered before.

    Raises:
        StorageError: if a name is unknown, or a file holds no experiment.
    """
    if right is not None:
        return Comparison(left, right, document_differences(*(_document(store, each) for each in (left, right))))
    own = _document(store, left)
    before = _version_before(store.ledger, left if "@" in left else read_named(store.home, left).partition_key)
    return Comparison(
        before, left, document_differences(own if before is None else version_content(store.ledger, before), own)
    )


def _version_before(ledger: Ledger, key: str) -> str | None:
    """The version from which a version was made, or the newest of its name for one that is not registered."""
    versions = ledger.versions()
    own = versions.filter(pl.col("partition_key") == key)
    parents = pl.col("spec_hash").is_in(own["parent_hash"].implode())
    before = versions.filter(parents if len(own) else pl.col("name") == key.partition("@")[0])
    return before["partition_key"][0] if len(before) else None


def _document(store: Store, what: str) -> dict[str, Any]:
    """Document of a version (name@hash8), of a YAML file, or of an experiment by its name."""
    return version_content(store.ledger, what) if "@" in what else read_named(store.home, what).model_dump(mode="json")


def read_named(home: Home, what: str) -> Any:
    """The experiment of a YAML file, or of a name in data/experiments.

    Raises:
        StorageError: if there is none.
    """
    if what.endswith((".yaml", ".yml")):
        return read_experiment(Path(what))
    found = read_experiments(home)
    named = [each for spec in found.specs for each in (*spec.variants(), spec) if each.name == what]
    if not named:
        known = ", ".join(spec.name for spec in found.specs) or "none"
        raise StorageError(f"no experiment is named {what!r}; there are: {known}; or name a version or a YAML file")
    return named[0]
