"""Documents of runs: ledger row, spec, policies, events and verdict; and their list."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.evaluation.account_statistics import Leverage
from nvtrader_pipelines.evaluation.guard_telemetry import GuardTelemetry
from nvtrader_pipelines.evaluation.session_windows import WINDOW_DISTRIBUTION
from nvtrader_pipelines.runs.run_exposure import read_guard_telemetry, read_leverage
from nvtrader_pipelines.runs.run_tables import suggest_run, walk_forward_runs
from nvtrader_pipelines.scoreboard.board import with_openings
from nvtrader_pipelines.service.documents.document import Document, row_model, rows_of
from nvtrader_pipelines.service.documents.run_verdict import run_verdict
from nvtrader_pipelines.service.documents.short_samples import mask_short
from nvtrader_pipelines.service.documents.universes import with_market
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.ledger import SHOWN_STATUS, Ledger, LedgerRun, RunStatus, schema
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, RUNS, SCOREBOARD
from nvtrader_pipelines.storage.views.run_views import run_views

KEYS = ("spec_hash", "run_id", "experiment", "fold")  # columns of a verdict that are the same in all rows of a run
LIST_COLUMNS = (
    *("run_id", "kind", "status", "partition_key", "source", "window_first", "window_last", "parent_run_id"),
    *("started_at", "finished_at", "message"),
)
LIST_FIGURES = ("sharpe", "sharpe_low", "sharpe_high", "max_drawdown", "n_sessions")
LISTED_RUNS = TableSchema(
    schema.polars_schema(schema.RUNS).only(*LIST_COLUMNS),
    EVALUATIONS.schema.only(*LIST_FIGURES),
    RUNS.schema.only("validation_only"),
)
FIGURES = EVALUATIONS.schema.without(*KEYS)
OPENINGS = TableSchema(
    SCOREBOARD.schema.only("openings"),
    Column("baseline_openings", pl.List(pl.Float64), "the same of the best baseline"),
)


class ListedRun(row_model(LISTED_RUNS)):
    """Run of the list, with the figures of its account over all test sessions."""


class PolicyFile(row_model(schema.polars_schema(schema.POLICIES).without("run_id"))):
    """File of a trained policy."""


class RunEvent(row_model(schema.polars_schema(schema.EVENTS).only("timestamp", "stage", "fold", "seed", "message"))):
    """Event of a run."""


class Figures(row_model(TableSchema(FIGURES, OPENINGS))):
    """Figures of an account over a period; annualized ones are null for a short sample."""


class WalkFigures(row_model(FIGURES)):
    """Figures of a walk's account over a period; annualized ones are null for a short sample."""


class SummaryFigures(row_model(TableSchema(EVALUATIONS.schema, RUNS.schema.only("validation_only"), OPENINGS))):
    """Figures of an account in an experiment's latest run by period; null for short samples."""


class ShownRun(LedgerRun):
    """Run of the ledger, with the status of deleted runs."""

    status: RunStatus | Literal["deleted"]  # pyright: ignore[reportIncompatibleVariableOverride]


class RunDocument(Document):
    """All facts of a run."""

    verdict: str
    run: ShownRun
    spec: dict[str, Any]  # of its version, as registered
    policies: tuple[PolicyFile, ...]
    figures: tuple[Figures, ...]  # by account and period
    leverage: Leverage | None  # of its account over all tests; null where its gross is at most 1
    guards: GuardTelemetry | None  # of its account over all tests; null without guards
    events: tuple[RunEvent, ...]  # oldest first
    views: tuple[str, ...]  # names in DuckDB
    warnings: tuple[str, ...]


class WalkDocument(Document):
    """Replay or forward run, with its figures by account and period."""

    run: LedgerRun
    figures: tuple[WalkFigures, ...]


class WindowResults(row_model(WINDOW_DISTRIBUTION)):
    """Distribution of an account's results over all windows."""


class WindowsDocument(Document):
    """Results over all windows of a run's test sessions, and the path of their picture; windows overlap."""

    run_id: str
    n_sessions: int  # in a window
    accounts: tuple[WindowResults, ...]  # policy, best baseline (picked with hindsight) and 1/N
    picture: Path


class DeletedRun(Document):
    """Deleted run, with the number of files and rows that were removed."""

    run: str  # id
    n_files: int  # policies and checkpoints
    n_bytes: int
    rows: dict[str, int]  # by name of the table
    pictures: tuple[Path, ...]  # folders of its version, if that has no other run
    is_trial: bool
    kept: str  # records that remain, in words


def close_dead_runs(store: Store) -> None:
    """Mark runs whose process has ended as interrupted."""
    store.ledger.close_interrupted()
    running = store.ledger.runs().filter(pl.col("status") == "running", pl.col("dagster_run_id").is_not_null())
    if len(running):  # only Dagster knows their state, and opening it takes seconds
        from nvtrader_pipelines.orchestration.instance import open_instance

        open_instance(store).dispose()


def find_run_by_name(ledger: Ledger, text: str) -> LedgerRun:
    """Find a run by its id, or the newest training run of an experiment or version.

    A deleted run of an experiment is found only if it has no other.

    Raises:
        NotFoundError: if no run or several runs match.
    """
    if not text.strip():
        raise NotFoundError("a run is named by its id or an experiment, but the name is empty; see `nvtrader runs`")
    runs = ledger.runs(with_deleted=True).sort(pl.col("deleted_at").is_not_null(), maintain_order=True)
    named = (pl.col("partition_key") == text) | pl.col("partition_key").str.starts_with(f"{text}@")
    found = runs.filter(named, pl.col("parent_run_id").is_null())
    if len(found):
        return ledger.run(found["run_id"][0])
    if not runs["run_id"].str.starts_with(text).any():
        near = suggest_run(runs, text) or ";"
        raise NotFoundError(
            f"no run's id begins with {text!r}, and no experiment of that name has a run{near} see `nvtrader runs`"
        )
    return ledger.find_run(text)


def require_trained_run(store: Store, text: str) -> LedgerRun:
    """Find a run as `find_run_by_name` does, and raise unless all its policies are trained.

    Raises:
        StorageError: if no run matches, or policies are missing.
    """
    run = find_run_by_name(store.ledger, text)
    verb = "trains it again" if run.deleted_at else "resumes it"
    if not store.policies.is_sealed(run.partition_key, run.parent_run_id or run.run_id):
        name = run.partition_key.partition("@")[0]
        raise StorageError(
            f"all policies of run {run.run_id} of {run.partition_key} must be trained, but it is {run.shown_status}; "
            f"`nvtrader experiments run {name}` {verb}"
        )
    return run


def list_runs(store: Store, *, everything: bool = False) -> pl.DataFrame:
    """List runs, newest first, with the figures of verdicts where there are any.

    Deleted runs and those of archived experiments are only listed with `everything`.
    """
    figures = ensemble_rows(store.tables.read(EVALUATIONS)).select("run_id", *LIST_FIGURES)
    runs = store.ledger.runs(with_deleted=everything).with_columns(SHOWN_STATUS)
    runs = runs.select(LIST_COLUMNS)
    if not everything:
        name = pl.col("partition_key").str.split("@").list.first()
        runs = runs.filter(~name.is_in(list(store.ledger.archived_names())))
    marks = walk_forward_runs(store, ["run_id", "validation_only"])
    known = runs.join(figures, on="run_id", how="left").join(marks, on="run_id", how="left")
    return known.with_columns(pl.col("validation_only").fill_null(value=False)).sort("started_at", descending=True)


def verdict_rows(store: Store, run_id: str) -> pl.DataFrame:
    """Rows of the verdict on a run by account and period; no folds, short samples masked."""
    rows = store.tables.read(EVALUATIONS, {"run_id": [run_id]}).filter(pl.col("period") != "fold")
    return mask_short(sort_accounts(rows)).drop(KEYS)


def summary_rows(store: Store, names: Sequence[str] = ()) -> pl.DataFrame:
    """Read the verdicts of the latest run per experiment and market, without folds and seeds.

    The columns are those of the verdicts, with annualized figures of short samples null, `source`, `market`
    and `validation_only`.
    Without names, all experiments are read.
    """
    runs = walk_forward_runs(store)
    chosen = runs.filter(pl.col("experiment").is_in(list(names))) if names else runs
    latest = chosen.sort("finished_at").group_by("experiment", "source", maintain_order=True).last()
    verdicts = store.tables.read(EVALUATIONS).join(latest.select("run_id", "source", "validation_only"), on="run_id")
    shown = verdicts.filter((pl.col("period") != "fold") & (pl.col("kind") != "policy"))
    return with_market(store, mask_short(with_openings(store, shown)))


def sort_accounts(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Sort by period, then experiments, single policies and baselines, best first."""
    order = pl.col("kind").replace_strict({"ensemble": 0, "policy": 1, "baseline": 2}, return_dtype=pl.Int8)
    return verdicts.sort("period", order, "sharpe", descending=[False, False, True])


def with_distinct_names(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Append the experiment to names of baselines that occur in several environments."""
    if "experiment" not in verdicts.columns:
        return verdicts
    named = pl.format("{} ({})", "policy", "experiment")
    return verdicts.with_columns(pl.when(pl.len().over("policy") > 1).then(named).otherwise("policy").alias("policy"))


def with_validation_mark(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Append "(validation only)" to the names of accounts of such runs, if the column exists."""
    if "validation_only" not in verdicts.columns:
        return verdicts
    named = pl.format("{} (validation only)", "policy")
    return verdicts.with_columns(pl.when("validation_only").then(named).otherwise("policy").alias("policy"))


def run_document(store: Store, run: LedgerRun) -> RunDocument:
    """All facts of a run as a document."""
    completed = store.tables.read(RUNS, {"run_id": [run.run_id]}, ["warnings"])["warnings"].to_list()
    figures = verdict_rows(store, run.run_id)
    return RunDocument(
        verdict=run_verdict(store, run, figures),
        run=ShownRun.model_validate({**dict(run), "status": run.shown_status}),
        spec=version_content(store.ledger, run.partition_key),
        policies=rows_of(PolicyFile, store.ledger.policies(run.run_id)),
        figures=rows_of(Figures, with_openings(store, figures)),
        leverage=read_leverage(store, run),
        guards=read_guard_telemetry(store, run),
        events=rows_of(RunEvent, store.ledger.events(run.run_id)),
        views=tuple(run_views(run.run_id)) if completed and not run.deleted_at else (),
        warnings=tuple(warning for warnings in completed for warning in warnings),
    )


def stage_rows(events: pl.DataFrame) -> pl.DataFrame:
    """Rows of stages by fold and seed: first time, number of events, and last message."""
    of_stage = events.group_by("stage", "fold", "seed", maintain_order=True)
    rows = of_stage.agg(pl.col("timestamp").first().alias("first"), pl.len().alias("n"), pl.col("message").last())
    return rows.select("first", "stage", "fold", "seed", "n", "message")


def ensemble_rows(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Rows of the experiments' accounts over all test sessions; short samples masked."""
    return mask_short(verdicts.filter(pl.col("kind") == "ensemble", pl.col("period") == "all"))
