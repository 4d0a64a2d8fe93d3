"""Facts of experiments: plans on the market, versions and runs, and differences between two."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.components.document import Document, row_model, rows_of
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.registration import plan_problem, plan_variants, read_unarchived_experiments
from nvtrader_pipelines.runs.training_time import describe_long_trainings, estimate_training
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import SHOWN_STATUS, schema
from nvtrader_pipelines.storage.spec_versions import document_differences, version_content
from nvtrader_pipelines.storage.specs import experiment_name, read_experiment, read_experiments
from nvtrader_pipelines.storage.store import Store

VALIDATED_EXPERIMENTS = TableSchema(
    Column("experiment", pl.String, "name of the experiment"),
    Column("runs", pl.Int64, "number of runs, one per variant; like the other numbers null if there is a problem"),
    Column("folds", pl.Int64, "number of folds"),
    Column("seeds", pl.Int64, "number of seeds"),
    Column("training", pl.String, "estimate of the time, in words; null if nothing is to be trained"),
    Column("warnings", pl.List(pl.String), "warnings of the plan"),
    Column("problem", pl.String, "why it cannot be planned; null if it can"),
)


class ValidatedExperiment(row_model(VALIDATED_EXPERIMENTS)):
    """Numbers of the plan of an experiment, or the reason why it cannot be planned."""


class NewExperiment(Document):
    """File of a new experiment."""

    name: str
    path: Path


class ArchivedExperiments(Document):
    """Experiments that were archived or put back."""

    names: tuple[str, ...]  # with variants
    archived: bool


class FieldDifference(Document):
    """Field in which two experiments differ; null where it is missing."""

    field: str  # dotted path
    left: str | None
    right: str | None


class SmokeDocument(Document):
    """Extent and duration of a smoke run."""

    experiment: str
    n_folds: int  # of the whole run, of which one was trained
    n_seeds: int
    timesteps: int | None  # of the one training; null if the agent does not learn
    seconds: float
    is_result: Literal[False]  # nothing is stored or counted


class ExperimentPlan(Document):
    """Numbers of a plan on the market."""

    experiment: str
    runs: int
    folds: int
    seeds: int
    training: str | None  # estimate of the time, in words; null if nothing is to be trained
    warnings: tuple[str, ...]


class PlanProblem(Document):
    """Reason why an experiment cannot be planned."""

    experiment: str
    problem: str


class VersionFacts(row_model(schema.polars_schema(schema.VERSIONS).only("partition_key", "created_at"))):
    """Registered version."""


class LastRun(
    row_model(
        schema.polars_schema(schema.RUNS).only("run_id", "kind", "status", "partition_key", "started_at", "finished_at")
    )
):
    """Newest run of any variant, deleted ones included."""


class ExperimentDocument(Document):
    """Facts of an experiment."""

    name: str
    description: str
    version: str  # name@hash8 of the file as it is now
    spec_hash: str
    is_registered: bool
    is_archived: bool
    versions: tuple[VersionFacts, ...]  # registered ones, newest first
    variants: tuple[str, ...]  # versions of an ablation
    last_run: LastRun | None
    plan: ExperimentPlan | PlanProblem
    spec: dict[str, Any]  # with defaults


def validate_experiments(store: Store, names: Sequence[str] = ()) -> pl.DataFrame:
    """Plan experiments without registering them; a row per experiment or invalid file.

    Raises:
        NotFoundError: if a name is unknown, or there is no experiment.
    """
    experiments = read_unarchived_experiments(store) if not names else read_experiments(store.home)
    broken = {experiment_name(path): problem for path, problem in experiments.problems.items()}
    specs = {spec.name: spec for spec in experiments.specs}
    unknown = [name for name in names if name not in specs and name not in broken]
    if unknown:
        known = [*specs, *broken]
        names_of_unknown, near = ", ".join(map(repr, unknown)), suggest(Path(unknown[0]).stem, known)
        raise NotFoundError(f"no experiment is named {names_of_unknown}; there are: {', '.join(known) or 'none'}{near}")
    if not (specs or broken):
        raise NotFoundError(
            f"there is no experiment to check in {store.home.experiments}; `nvtrader experiments new NAME` writes one"
        )
    rows = [
        _plan_facts(store, specs[name]) if name in specs else PlanProblem(experiment=name, problem=broken[name])
        for name in names or sorted({*specs, *broken})
    ]
    return pl.DataFrame([row.model_dump() for row in rows], schema=VALIDATED_EXPERIMENTS)


def _plan_facts(store: Store, spec: ExperimentSpec) -> ExperimentPlan | PlanProblem:
    """Numbers of the plan of a valid file, or why it cannot be planned."""
    problem = plan_problem(store, spec)
    if problem is not None:
        return PlanProblem(experiment=spec.name, problem=problem)
    plans = plan_variants(store, spec)
    estimate = estimate_training(store, plans)
    long = [describe_long_trainings([estimate])] if estimate and estimate.is_long else []
    return ExperimentPlan(
        experiment=spec.name,
        runs=len(plans),
        folds=len(plans[0].folds),
        seeds=len(plans[0].spec.seeds),
        training=estimate and estimate.sentence,
        warnings=(*long, *dict.fromkeys(warning for plan in plans for warning in plan.warnings)),
    )


def experiment_document(store: Store, name: str) -> ExperimentDocument:
    """Facts of an experiment: state, versions, last run, plan and resolved spec.

    Raises:
        NotFoundError: if it does not exist.
        StorageError: if it is not valid.
    """
    spec = read_named_experiment(store.home, name)
    versions = store.ledger.versions().filter(name=spec.name)
    keys = [variant.partition_key for variant in spec.variants()]
    runs = store.ledger.runs(with_deleted=True).filter(pl.col("partition_key").is_in(keys)).with_columns(SHOWN_STATUS)
    return ExperimentDocument(
        name=spec.name,
        description=spec.description,
        version=spec.partition_key,
        spec_hash=spec.spec_hash,
        is_registered=spec.partition_key in versions["partition_key"].to_list(),
        is_archived=spec.name in store.ledger.archived_names(),
        versions=rows_of(VersionFacts, versions),
        variants=tuple(keys) if keys != [spec.partition_key] else (),
        last_run=next(iter(rows_of(LastRun, runs.head(1))), None),
        plan=_plan_facts(store, spec),
        spec=spec.model_dump(mode="json"),
    )


def compare_experiments(store: Store, left: str, right: str | None) -> pl.DataFrame:
    """Compare two experiments, or one with the version registered before it: field, left, right.

    Raises:
        NotFoundError: if a name is unknown.
        StorageError: if a file holds no valid experiment.
    """
    own = _document(store, left)
    if right is not None:
        return document_differences(own, _document(store, right))
    before = version_before(store, left)
    return document_differences(own if before is None else _document(store, before), own)


def version_before(store: Store, name: str) -> str | None:
    """Find the parent of a registered version, or the newest version of an unregistered name."""
    key = name if "@" in name else read_named_experiment(store.home, name).partition_key
    versions = store.ledger.versions()
    own = versions.filter(pl.col("partition_key") == key)
    parents = pl.col("spec_hash").is_in(own["parent_hash"].implode())
    before = versions.filter(parents if len(own) else pl.col("name") == key.partition("@")[0])
    return before["partition_key"][0] if len(before) else None


def _document(store: Store, name: str) -> dict[str, Any]:
    """Content of a version (name@hash8), a YAML file, or an experiment of data/experiments."""
    if "@" in name:
        return version_content(store.ledger, name)
    return read_named_experiment(store.home, name).model_dump(mode="json")


def read_named_experiment(home: Home, name: str) -> ExperimentSpec:
    """Read an experiment from a YAML file, or by its name in data/experiments.

    Raises:
        NotFoundError: if there is none of this name.
        StorageError: if it is not valid.
    """
    if name.endswith((".yaml", ".yml")):
        return read_experiment(Path(name))
    experiments = read_experiments(home)
    named = [variant for spec in experiments.specs for variant in (*spec.variants(), spec) if variant.name == name]
    broken = [problem for path, problem in experiments.problems.items() if experiment_name(path) == name]
    if broken and not named:
        raise StorageError(broken[0])
    if not named:
        known = ", ".join(spec.name for spec in experiments.specs) or "none"
        near = suggest(name, [spec.name for spec in experiments.specs])
        raise NotFoundError(
            f"no experiment is named {name!r}; there are: {known}; or name a version or a YAML file{near}"
        )
    return named[0]
