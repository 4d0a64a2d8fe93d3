"""Documents of runs: ledger row, spec, policies, events and verdict; and their list."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.components.document import Document, row_model, rows_of
from nvtrader_pipelines.evaluation.account_statistics import Leverage
from nvtrader_pipelines.evaluation.guard_telemetry import GuardTelemetry
from nvtrader_pipelines.evaluation.session_windows import WINDOW_DISTRIBUTION
from nvtrader_pipelines.evaluation.short_samples import mask_short
from nvtrader_pipelines.runs.annotations import Annotation, read_annotation
from nvtrader_pipelines.runs.run_choices import (
    ChosenSeed,
    WeightedSeeds,
    describe_choices,
    read_choices,
    read_seed_weights,
)
from nvtrader_pipelines.runs.run_queries import (
    KEYS,
    LISTED_RUNS,
    read_guard_telemetry,
    read_leverage,
    verdict_rows,
    with_openings,
)
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.runs.run_verdict import run_verdict
from nvtrader_pipelines.runs.universes import with_market
from nvtrader_pipelines.runs.world_results import WorldResult, read_results, world_verdict
from nvtrader_pipelines.storage.ledger import LedgerRun, RunStatus, schema
from nvtrader_pipelines.storage.spec_versions import agents_by_seed, version_content
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, RUNS, SCOREBOARD
from nvtrader_pipelines.storage.tables.rl import run_views

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
    annotation: Annotation
    spec: dict[str, Any]  # of its version, as registered
    figures: tuple[Figures, ...]  # by account and period
    policies: tuple[PolicyFile, ...]
    choices: tuple[ChosenSeed, ...]  # by fold; empty where seeds are averaged
    seed_weights: tuple[WeightedSeeds, ...]  # by fold; empty where one seed trades or all weigh the same
    world_results: tuple[WorldResult, ...]  # of a run in a world, the mean over the seeds first; empty elsewhere
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
    figures, events = verdict_rows(store, run.run_id), store.ledger.events(run.run_id)
    spec = version_content(store.ledger, run.partition_key, with_worlds=True)
    agents = agents_by_seed(spec)
    choices, seed_weights = read_choices(events, agents), read_seed_weights(events, agents)
    traded, world_results = describe_choices(choices, seed_weights), read_results(store, run.run_id)
    verdict = world_verdict(world_results) if world_results else run_verdict(store, run, figures)
    return RunDocument(
        verdict="; ".join([verdict, *([traded] if traded else [])]),
        run=ShownRun.model_validate({**dict(run), "status": run.shown_status}),
        annotation=read_annotation(store, run.run_id),
        spec=spec,
        policies=rows_of(PolicyFile, store.ledger.policies(run.run_id)),
        choices=choices,
        seed_weights=seed_weights,
        figures=rows_of(Figures, with_openings(store, figures)),
        world_results=world_results,
        leverage=read_leverage(store, run),
        guards=read_guard_telemetry(store, run),
        events=rows_of(RunEvent, events),
        views=tuple(run_views(run.run_id)) if completed and not run.deleted_at else (),
        warnings=tuple(warning for warnings in completed for warning in warnings),
    )
