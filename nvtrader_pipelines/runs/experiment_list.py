"""List of experiments: registered versions and files, with their runs."""

import json
from typing import Any

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.components.document import row_model
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.ledger import SHOWN_STATUS
from nvtrader_pipelines.storage.specs import experiment_name, read_experiments
from nvtrader_pipelines.storage.store import Store

LISTED_EXPERIMENTS = TableSchema(
    Column("partition_key", pl.String, "name@hash8 of the version"),
    Column("in_files", pl.Boolean, "whether a file of data/experiments has it"),
    Column("agent", pl.String, "kind of the agent"),
    Column("design", pl.String, "kind of the design"),
    Column("registered_at", UTC_TIME, "when it was registered; null if it is only in a file"),
    Column("runs", pl.UInt32, "number of its runs, without deleted ones"),
    Column(
        "last_status",
        pl.String,
        "status of its newest run; null without one, or draft if its file is an unedited template",
    ),
)


def list_experiments(store: Store, *, everything: bool = False) -> tuple[pl.DataFrame, list[str], int]:
    """List registered versions and files, newest first by name, with problems of files.

    Archived experiments, and versions without file or run, are only listed with `everything`; the last value is the
    number of rows left out.
    """
    files = read_experiments(store.home)
    in_files = {version.partition_key: version for spec in files.specs for version in (spec, *spec.variants())}
    rows = [
        _list_row(row["partition_key"], json.loads(row["content"]), row["created_at"], in_files)
        for row in store.ledger.versions().iter_rows(named=True)
    ]
    registered = {row[0] for row in rows}
    rows += [
        _list_row(key, spec.model_dump(mode="json"), None, in_files)
        for key, spec in in_files.items()
        if key not in registered
    ]
    schema = LISTED_EXPERIMENTS.without("runs", "last_status")
    runs = store.ledger.runs(with_deleted=True).sort("started_at").with_columns(SHOWN_STATUS).group_by("partition_key")
    counted = runs.agg(
        (pl.col("status") != "deleted").sum().alias("runs"), pl.col("status").last().alias("last_status")
    )
    table = pl.DataFrame(rows, schema=schema, orient="row").join(counted, on="partition_key", how="left")
    ordered = table.sort(
        pl.col("partition_key").str.split("@").list.first(), "registered_at", descending=[False, True], nulls_last=False
    )
    is_draft = pl.col("registered_at").is_null() & pl.col("partition_key").is_in(list(files.drafts))
    rows_of_all = ordered.with_columns(
        pl.col("runs").fill_null(0),
        pl.when(is_draft).then(pl.lit("draft")).otherwise("last_status").alias("last_status"),
    )
    archived = pl.col("partition_key").str.split("@").list.first().is_in(list(store.ledger.archived_names()))
    shown = rows_of_all if everything else rows_of_all.filter(~archived, pl.col("in_files") | (pl.col("runs") > 0))
    return shown, list(files.problems.values()), len(rows_of_all) - len(shown)


def _list_row(key: str, spec: dict[str, Any], at: object, in_files: dict[str, Any]) -> tuple[Any, ...]:
    design = spec.get("design", {}).get("kind")
    return key, key in in_files, spec.get("agent", {}).get("kind"), design, at


class ListedExperiment(row_model(LISTED_EXPERIMENTS)):
    """Version of the list of experiments."""


def names_with_variants(store: Store, name: str) -> list[str]:
    """Names of an experiment and all its variants, from its file and its registered versions.

    Raises:
        NotFoundError: if there is neither a file nor a registered version.
        StorageError: if the name is that of a variant.
    """
    experiments, versions = read_experiments(store.home), store.ledger.versions()
    variants = {spec.name: [variant.name for variant in spec.variants()] for spec in experiments.specs}
    for owner, names in variants.items():
        if name in names and name != owner:
            raise StorageError(f"{name} is a variant of {owner}; archive or unarchive {owner}")
    files = {*variants, *(experiment_name(path) for path in experiments.problems)}
    known = sorted({*files, *versions["name"]})
    if name not in known:
        raise NotFoundError(
            f"no experiment is named {name!r}{suggest(name, known)}; see `nvtrader experiments list --all`"
        )
    parents = versions.filter(pl.col("name") == name)["spec_hash"]
    children = versions.filter(pl.col("parent_hash").is_in(parents.implode()))["name"]
    return [name, *sorted({*variants.get(name, ()), *children} - {name})]
