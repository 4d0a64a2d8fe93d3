"""Launches through Dagster, and what the answer to a launch says."""

from collections.abc import Callable
from typing import Any

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.orchestration.launching import launch
from nvtrader_pipelines.research.search_settings import LaunchSettings
from nvtrader_pipelines.runs.market_state import panel_sources
from nvtrader_pipelines.runs.registration import plan_problem, register_experiments
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.problems import Conflict, NotFound, not_found
from nvtrader_pipelines.service.documents.document import Document
from nvtrader_pipelines.service.documents.experiment_facts import read_named_experiment
from nvtrader_pipelines.service.documents.run_facts import find_run_by_name


class Launched(Document):
    """Run that was launched."""

    task_id: str  # of the Dagster run; its progress is at /chat/stream/{task_id}
    version_id: str | None = None  # of the experiment
    spec_hash: str | None = None
    session_id: str | None = None  # of a search


def require_plan(shared: Context, spec: ExperimentSpec) -> None:
    """Raise unless the market can run an experiment.

    Raises:
        Conflict: with the reason.
    """
    problem = plan_problem(shared.store, spec)
    if problem is not None:
        raise Conflict(problem)


def require_source(shared: Context, source: str) -> None:
    """Raise unless a market source is built.

    Raises:
        Conflict: with the sources that are.
    """
    sources = panel_sources(shared.store)
    if source not in sources:
        names = ", ".join(sources) or "none"
        raise Conflict(
            f"a training needs prices of its source, but {source!r} is none of those built ({names}); ingest it"
        )


def register(shared: Context, spec: ExperimentSpec) -> bool:
    """Register an experiment, and return whether it is new.

    Raises:
        Conflict: if the market cannot run it.
    """
    with shared.store.lock("registration"):  # of equal ones posted at once, one is new
        is_new = spec.partition_key not in set(shared.store.ledger.versions()["partition_key"])
        problem = register_experiments(shared.store, [spec]).problems.get(spec.name)
    if problem is not None:
        raise Conflict(problem)
    return is_new


def launch_named(shared: Context, name: str) -> Launched:
    """Train and evaluate an experiment, named as its file, or as a version."""
    if name.endswith((".yaml", ".yml")):
        raise NotFound(f"an experiment is named by its name or version, but {name!r} is a file; post its content")
    if "@" in name:
        with not_found():
            return _launch_version(shared, shared.store.ledger.read(name))
    with not_found():
        spec = read_named_experiment(shared.home, name)
    return launch_experiment(shared, spec)


def launch_experiment(shared: Context, spec: ExperimentSpec) -> Launched:
    """Register an experiment, and train and evaluate it."""
    register(shared, spec)
    return _launch_version(shared, spec)


def _launch_version(shared: Context, spec: ExperimentSpec) -> Launched:
    shared.job_runs.add_experiment(spec.partition_key)
    task_id = launch(shared.store, "experiment", partition=spec.partition_key)
    return Launched(task_id=task_id, version_id=spec.partition_key, spec_hash=spec.spec_hash)


def launch_replay(shared: Context, run_id: str, config: dict[str, Any]) -> Launched:
    """Walk the policies of a run through another window."""
    with not_found():
        run = find_run_by_name(shared.store.ledger, run_id)
    settings = {"ops": {"replay_policies": {"config": {**config, "run_id": run.run_id}}}}
    task_id = launch(shared.store, "replay", config=settings)
    return Launched(task_id=task_id, version_id=run.partition_key, spec_hash=run.spec_hash)


def launch_search(shared: Context, settings: LaunchSettings) -> Launched:
    """Start a search session."""
    config = {"ops": {"autoresearch_session": {"config": settings.model_dump(mode="json")}}}
    task_id = launch(shared.store, "autoresearch", config=config)
    return Launched(task_id=task_id, session_id=shared.job_runs.session_id(task_id))


LAUNCHES: dict[str, Callable[..., Launched]] = {  # by the route of a long operation
    "POST /api/searches/start": launch_search,
}
