"""Launches through Dagster, and what the answer to a launch says."""

from collections.abc import Callable
from datetime import date

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.orchestration.launching import launch
from nvtrader_pipelines.orchestration.workflow_files import read_workflow, workflow_job_name
from nvtrader_pipelines.research.search_settings import LaunchSettings
from nvtrader_pipelines.research.session_store import unused_note
from nvtrader_pipelines.runs.applications import store_app
from nvtrader_pipelines.runs.experiment_document import read_named_experiment
from nvtrader_pipelines.runs.market_state import panel_sources
from nvtrader_pipelines.runs.registration import plan_problem, register_experiments, store_manual_experiment
from nvtrader_pipelines.runs.run_queries import find_run_by_name
from nvtrader_pipelines.runs.world_runs import plan_world
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.problems import refusing
from nvtrader_pipelines.service.operations.arguments import App
from nvtrader_pipelines.storage.errors import ConflictError, NotFoundError
from nvtrader_pipelines.storage.world_files import read_world


class Launched(Document):
    """Run that was launched."""

    task_id: str  # of the Dagster run; its progress is at /chat/stream/{task_id}
    version_id: str | None = None  # of the experiment
    spec_hash: str | None = None
    session_id: str | None = None  # of a search
    note: str = ""  # on a setting that is not used


def require_plan(shared: Context, spec: ExperimentSpec) -> None:
    """Raise unless the market can run an experiment.

    Raises:
        ConflictError: with the reason.
    """
    problem = plan_problem(shared.store, spec)
    if problem is not None:
        raise ConflictError(problem)


def register(shared: Context, spec: ExperimentSpec) -> bool:
    """Register an experiment, and return whether it is new.

    Raises:
        ConflictError: if the market cannot run it.
    """
    with shared.store.lock("registration"):  # of equal ones posted at once, one is new
        is_new = spec.partition_key not in set(shared.store.ledger.versions()["partition_key"])
        problem = register_experiments(shared.store, [spec]).problems.get(spec.name)
    if problem is not None:
        raise ConflictError(problem)
    return is_new


def launch_named(shared: Context, name: str) -> Launched:
    """Train and evaluate an experiment, named as its file, or as a version."""
    if name.endswith((".yaml", ".yml")):
        raise NotFoundError(f"an experiment is named by its name or version, but {name!r} is a file; post its content")
    if "@" in name:
        return _launch_version(shared, shared.store.ledger.read(name))
    return launch_experiment(shared, read_named_experiment(shared.home, name))


def launch_training(
    shared: Context, symbols: tuple[str, ...] = (), total_timesteps: int | None = None, source: str = "sample"
) -> Launched:
    """Start a manual run of PPO.

    Raises:
        ConflictError: if the source is not built, or its market cannot run it.
    """
    sources = panel_sources(shared.store)
    if source not in sources:
        names = ", ".join(sources) or "none"
        raise ConflictError(
            f"a training needs prices of its source, but {source!r} is none of those built ({names}); ingest it"
        )
    return launch_named(shared, store_manual_experiment(shared.store, source, symbols or None, total_timesteps))


def launch_app(shared: Context, app: App, total_timesteps: int | None = None) -> Launched:
    """Start the experiment of an application, on prices that were delivered before.

    Raises:
        ConflictError: if its market is not built, or cannot run it.
    """
    with refusing(ConflictError):
        name = store_app(shared.store, app, total_timesteps)
    note = f"then `nvtrader apps {app}` replays its last month on an account" if app == "paper" else ""
    return launch_named(shared, name).model_copy(update={"note": note})


def launch_experiment(shared: Context, spec: ExperimentSpec) -> Launched:
    """Register an experiment, and train and evaluate it."""
    register(shared, spec)
    return _launch_version(shared, spec)


def _launch_version(shared: Context, spec: ExperimentSpec) -> Launched:
    shared.job_runs.add_experiment(spec.partition_key)
    task_id = launch(shared.store, "experiment", partition=spec.partition_key)
    return Launched(task_id=task_id, version_id=spec.partition_key, spec_hash=spec.spec_hash)


def launch_replay(shared: Context, run: str, first: date | None, last: date | None, *, pinned: bool) -> Launched:
    """Walk the policies of a run through another window."""
    if first and last and first > last:
        raise ValueError(f"first must not be after last, but {first} is after {last}")
    replayed = find_run_by_name(shared.store.ledger, run)
    days = {name: f"{day}" for name, day in (("first", first), ("last", last)) if day}
    settings = {"ops": {"replay_policies": {"config": {"run_id": replayed.run_id, "pinned": pinned, **days}}}}
    task_id = launch(shared.store, "replay", config=settings)
    return Launched(task_id=task_id, version_id=replayed.partition_key, spec_hash=replayed.spec_hash)


def launch_search(shared: Context, settings: LaunchSettings) -> Launched:
    """Start a search session."""
    config = {"ops": {"autoresearch_session": {"config": settings.model_dump(mode="json")}}}
    task_id = launch(shared.store, "autoresearch", config=config)
    note = unused_note(settings.eval_mode) if "total_timesteps" in settings.model_fields_set else ""
    return Launched(task_id=task_id, session_id=shared.job_runs.session_id(task_id), note=note)


def launch_workflow(shared: Context, workflow: str) -> Launched:
    """Start a workflow, whose steps are checked before the first one runs."""
    from nvtrader_pipelines.orchestration.workflows import JOB_TAGS

    read_workflow(shared.home, workflow, JOB_TAGS)
    return Launched(task_id=launch(shared.store, workflow_job_name(workflow)))


def launch_world(shared: Context, world: str) -> Launched:
    """Train and test an experiment in a world.

    Raises:
        NotFoundError: if no valid file has the name.
        ConflictError: if its market is not built, or lacks days or a symbol.
    """
    spec = read_world(shared.home, world)
    with refusing(ConflictError):
        plan_world(shared.store, spec)
    config = {"ops": {"evaluation__world_results": {"config": {"worlds": [world]}}}}
    task_id = launch(shared.store, "world", config=config)
    return Launched(task_id=task_id, version_id=spec.partition_key, spec_hash=spec.spec_hash)


LAUNCHES: dict[str, Callable[..., Launched]] = {  # by the route of a long operation
    "POST /api/searches/start": launch_search,
    "POST /api/runs/replay": launch_replay,
    "POST /api/experiments/train": launch_training,
    "POST /api/experiments/apps": launch_app,
    "POST /api/workflows/{workflow}/run": launch_workflow,
    "POST /api/worlds/{world}/run": launch_world,
}
