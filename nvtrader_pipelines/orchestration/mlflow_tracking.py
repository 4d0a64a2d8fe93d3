"""MLflow resource: one MLflow run per experiment run, reused on a retry."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlencode

import dagster as dg
import polars as pl
from pydantic import PrivateAttr

from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.orchestration.mlflow_curves import (
    N_LISTED,
    PROCESS_TAG,
    RUN_TAG,
    LiveCurves,
    is_mark_alive,
    process_mark,
)
from nvtrader_pipelines.orchestration.mlflow_database import (
    Warn,
    open_database,
    open_postgres,
    rewrite_artifact_uris,
    store_errors,
)
from nvtrader_pipelines.orchestration.progress_log import Watch
from nvtrader_pipelines.policies.agents import Learner
from nvtrader_pipelines.runs.interruptions import is_interruption
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.settings import database_url

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

Result = TypeVar("Result")
LOGGER = logging.getLogger(__name__)
EXPERIMENT = "nvtrader"  # of MLflow, with a run per experiment run
TRAININGS = "nvtrader trainings"  # of MLflow, with a run per fold and seed
CURVE_POINTS = 200
ARTIFACTS = "/warehouse/mlflow/artifacts"  # end of the URI of a home's artifacts
MLFLOW_PARENT_TAG = "mlflow.parentRunId"
PARAM_LENGTH = 500  # longest value of a parameter that MLflow stores
DIGEST_LENGTH = 36  # longest digest of a data set that MLflow stores


@dataclass(frozen=True)
class TrackedRun:
    """Open MLflow run."""

    client: "MlflowClient"
    experiment_id: str
    mlflow_run_id: str
    run_id: str
    trainings_id: str  # of MLflow's experiment with the curves

    @property
    def metadata(self) -> dict[str, str]:
        """Asset metadata that links to the run, with its path in the MLflow web page."""
        path = f"#/experiments/{self.experiment_id}/runs/{self.mlflow_run_id}"
        return {"mlflow_run_id": self.mlflow_run_id, "mlflow_path": path}

    def log_plan(self, plan: RunPlan) -> None:
        """Log the spec, the warnings and the market, before the first step."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param, RunTag  # takes seconds to import

        spec, panel = plan.spec.model_dump(mode="json"), plan.panel
        self.client.log_batch(
            self.mlflow_run_id,
            params=[Param(key, value[:PARAM_LENGTH]) for key, value in flatten(spec).items()],
            tags=[RunTag(key, value) for key, value in self._tags(plan).items()],
        )
        self.client.log_dict(self.mlflow_run_id, spec, "experiment.yaml")
        charts = curves_path(self.trainings_id, f"tags.`{RUN_TAG}` = '{plan.parent_run_id or self.run_id}'")
        note = f"{plan.spec.description}\n\n[Curves of its trainings]({charts})"
        self.client.set_tag(self.mlflow_run_id, "mlflow.note.content", note)
        profile = {"sessions": len(panel.sessions), "symbols": len(panel.symbols)}
        profile |= {"first": str(panel.sessions[0]), "last": str(panel.sessions[-1])}
        source = json.dumps({"table": "gold.market_panel", "source": panel.source})
        columns = [{"name": name, "type": "double"} for name in panel.feature_names]
        market = Dataset(
            f"market of {panel.source}",
            plan.panel_digest[:DIGEST_LENGTH],
            "iceberg",
            source,
            schema=json.dumps({"mlflow_colspec": columns}),
            profile=json.dumps(profile),
        )
        context = InputTag("mlflow.data.context", "training" if plan.kind == "walk_forward" else plan.kind)
        self.client.log_inputs(self.mlflow_run_id, [DatasetInput(market, [context])])

    def log_training(self, curves: pl.DataFrame, folder: Path) -> None:
        """Log the mean learning curve and the policy files."""
        self.log_curve("mean_reward", mean_curve(curves))
        self.log_files(folder)

    def log_verdict(self, verdict: pl.DataFrame) -> None:
        """Log the figures of the ensemble per period, and the whole verdict as a file."""
        from mlflow.entities import Metric  # takes seconds to import

        names = ("sharpe", "cagr", "max_drawdown", "turnover_per_year", "cost_per_year", "sharpe_difference")
        rows = verdict.filter((pl.col("kind") == "ensemble") & (pl.col("period") != "fold"))
        metrics = [
            Metric(f"{period}/{name}", value, 0, n_sessions)  # a forward run that has grown adds a point
            for period, n_sessions, *values in rows.select("period", "n_sessions", *names).iter_rows()
            for name, value in zip(names, values, strict=True)
            if value is not None
        ]
        self.client.log_batch(self.mlflow_run_id, metrics=metrics)
        self.client.log_text(self.mlflow_run_id, verdict.write_csv(), "verdict.csv")

    def log_pictures(self, folder: Path, partition_key: str) -> None:
        """Log the plots of an experiment, which `folder` holds by asset."""
        for path in sorted(folder.glob(f"*/{partition_key}/*.png")):
            self.client.log_artifact(self.mlflow_run_id, str(path), f"pictures/{path.parents[1].name}")

    def _tags(self, plan: RunPlan) -> dict[str, str]:
        """Tags of a run; a replay or forward run names its parent, another its start, and is nested below it."""
        agent = plan.spec.agent
        window, warnings = " to ".join(map(str, plan.window)), " ".join(plan.warnings)
        tags = {"experiment": plan.spec.name, "kind": plan.kind, "window": window, "warnings": warnings}
        run_id = plan.parent_run_id or (agent.start if isinstance(agent, Learner) else None)
        if run_id is None:
            return tags
        parent = find_run(self.client, self.experiment_id, run_id)
        nesting = {MLFLOW_PARENT_TAG: parent.info.run_id} if parent else {}
        return {**tags, "parent_run_id" if plan.parent_run_id else "start": run_id, **nesting}

    def log_curve(self, name: str, points: list[tuple[int, float]]) -> None:
        """Log a curve of at most 200 points (step, value)."""
        from mlflow.entities import Metric  # takes seconds to import

        if len(points) > CURVE_POINTS:
            raise ValueError(f"curve {name!r} has {len(points)} points, more than {CURVE_POINTS}")
        self.client.log_batch(self.mlflow_run_id, metrics=[Metric(name, value, 0, step) for step, value in points])

    def log_files(self, folder: Path) -> None:
        """Log every file of a folder as an artifact."""
        self.client.log_artifacts(self.mlflow_run_id, str(folder), folder.name)


class MirroredRun:
    """MLflow run of an experiment run that does not need MLflow.

    The first failure of MLflow's store is a warning; after it nothing more is logged.
    """

    def __init__(self, start: Callable[[], TrackedRun], warn: Warn) -> None:
        self._warn = warn
        self.tracked = self._attempt(start)
        self.mlflow_run_id = self.tracked.mlflow_run_id if self.tracked else None
        self.metadata = self.tracked.metadata if self.tracked else {}

    @contextmanager
    def live_curves(self, name: str) -> Iterator[Watch]:
        """Yield the function that logs the curves of an experiment's trainings, and end them with the context."""
        curves = self.log(lambda run: LiveCurves(run.client, run.trainings_id, run.run_id, name))

        def write(to: Callable[[LiveCurves], None]) -> None:
            if curves and self.tracked:
                self._attempt(partial(to, curves))

        with _ending(lambda status: write(lambda curves: curves.close(status))):
            yield lambda step: write(lambda curves: curves.log(step))

    def log_training(self, curves: pl.DataFrame, folder: Path) -> None:
        """Log the mean learning curve and the policy files."""
        self.log(lambda run: run.log_training(curves, folder))

    def log_verdict(self, verdict: pl.DataFrame) -> None:
        """Log the figures of the ensemble per period, and the whole verdict as a file."""
        self.log(lambda run: run.log_verdict(verdict))

    def end(self, status: str) -> None:
        """End the MLflow run."""
        self.log(lambda run: run.client.set_terminated(run.mlflow_run_id, status))

    def log(self, write: Callable[[TrackedRun], Result]) -> Result | None:
        """Write to the MLflow run, unless its store has failed."""
        return self._attempt(partial(write, self.tracked)) if self.tracked else None

    def _attempt(self, action: Callable[[], Result]) -> Result | None:
        try:
            return action()
        except store_errors() as error:
            self.tracked = None
            reason = str(error).partition("\n")[0] or type(error).__name__
            self._warn(f"MLflow's store failed and lacks the rest of this run, whose results are complete: {reason}")
            return None


@contextmanager
def _ending(end: Callable[[str], None]) -> Iterator[None]:
    """Call a function with the status of an MLflow run when the context ends."""
    try:
        yield
    except BaseException as error:
        end("KILLED" if is_interruption(error) else "FAILED")
        raise
    end("FINISHED")


def mean_curve(curves: pl.DataFrame) -> list[tuple[int, float]]:
    """Mean reward of all trainings by timestep, at most 200 points; empty for rules, which do not train.

    Epochs of pairs differ in length from fold to fold: a training without a point at a timestep counts with its last.
    """
    if curves.is_empty():
        return []
    by_training = curves.pivot(["fold", "seed"], index="timesteps", values="mean_reward").sort("timesteps")
    mean = by_training.select("timesteps", mean=pl.mean_horizontal(pl.exclude("timesteps").forward_fill()))
    every = -(-len(mean) // CURVE_POINTS)
    return mean.gather_every(every, (len(mean) - 1) % every).rows()


def curves_path(trainings_id: str, search: str = "") -> str:
    """Path of the charts of trainings in the MLflow web page, restricted by a search."""
    query = {**({"searchFilter": search} if search else {}), "compareRunsMode": "CHART"}
    return f"#/experiments/{trainings_id}/runs?{urlencode(query, quote_via=quote)}"


def find_run(client: "MlflowClient", experiment_id: str, run_id: str) -> "Run | None":
    """Find the MLflow run of an experiment run by its tag."""
    runs = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run_id}'", max_results=1)
    return runs[0] if runs else None


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten a nested document to dotted names and text."""
    named = {}
    for key, value in content.items():
        named |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return named


class MlflowTracking(dg.ConfigurableResource):
    """MLflow store under `warehouse/mlflow`, whose database may be in the Postgres of the home."""

    folder: str
    _warned: set[str] = PrivateAttr(default_factory=set)  # ids of runs

    @classmethod
    def at(cls, home: Home) -> Self:
        """Return the MLflow store of a home."""
        return cls(folder=str(home.mlflow))

    @property
    def _database(self) -> Path:
        return Path(self.folder) / "mlflow.db"

    @property
    def _home(self) -> Home:
        return Home(Path(self.folder).parents[1])

    @property
    def artifacts(self) -> str:
        """URI of the artifacts, which are files of the home."""
        return (Path(self.folder) / "artifacts").as_uri()

    def delete(self, run_id: str) -> None:
        """Delete the MLflow runs of an experiment run and their artifacts, if there are any."""
        if not (database_url(self._home) or self._database.exists()):
            return
        client, *experiment_ids = self.open()
        for run in client.search_runs(experiment_ids, f"tags.`{RUN_TAG}` = '{run_id}'", max_results=N_LISTED):
            shutil.rmtree(Path(self.folder) / "artifacts" / run.info.run_id, ignore_errors=True)
            client.delete_run(run.info.run_id)

    def open(self, warn: Warn = LOGGER.warning) -> "tuple[MlflowClient, str, str]":
        """Open the MLflow store of the home, and mark the runs of dead processes as killed.

        Returns:
            The client, and the ids of the MLflow experiments with runs and with trainings.
        """
        artifacts, names, url = self.artifacts, (EXPERIMENT, TRAININGS), database_url(self._home)
        client = open_postgres(url, names, artifacts) if url else open_database(self._database, names, artifacts, warn)
        registered = client.get_experiment_by_name(EXPERIMENT)
        if registered and registered.artifact_location != artifacts:
            if url:  # another home's, which keeps its artifacts
                names = tuple(f"{name} of {self._home.root}" for name in names)
            elif registered.artifact_location.endswith(ARTIFACTS):
                rewrite_artifact_uris(self._database, registered.artifact_location, artifacts)
        known = {
            experiment.name: experiment.experiment_id
            for experiment in map(client.get_experiment_by_name, names)
            if experiment
        }
        runs_id, trainings_id = (known.get(name) or client.create_experiment(name, artifacts) for name in names)
        for run in client.search_runs([runs_id, trainings_id], "attributes.status = 'RUNNING'", max_results=N_LISTED):
            mark = run.data.tags.get(PROCESS_TAG)
            if mark and not is_mark_alive(mark):
                client.set_terminated(run.info.run_id, "KILLED")
        return client, runs_id, trainings_id

    @contextmanager
    def track(self, plan: RunPlan, warn: Warn = LOGGER.warning) -> Iterator[MirroredRun]:
        """Open the MLflow run of a plan, named after its version and kind, and log the plan."""
        of = "" if plan.kind == "walk_forward" else f"{plan.kind} of "
        with self.run(plan.run_id, f"{of}{plan.spec.partition_key}", warn) as tracked:
            tracked.log(lambda run: run.log_plan(plan))
            yield tracked

    @contextmanager
    def run(self, run_id: str, name: str, warn: Warn = LOGGER.warning) -> Iterator[MirroredRun]:
        """Open the MLflow run of an experiment run, found by its tag or new; a store that fails is one warning."""

        def warn_once(message: str) -> None:
            if run_id not in self._warned:
                self._warned.add(run_id)
                warn(message)

        mirrored = MirroredRun(lambda: self._start(run_id, name, warn), warn_once)
        with _ending(mirrored.end):
            yield mirrored

    def _start(self, run_id: str, name: str, warn: Warn) -> TrackedRun:
        client, experiment_id, trainings_id = self.open(warn)
        run = find_run(client, experiment_id, run_id)
        run = run or client.create_run(experiment_id, tags={RUN_TAG: run_id}, run_name=name)
        client.set_tag(run.info.run_id, PROCESS_TAG, process_mark())
        client.update_run(run.info.run_id, "RUNNING")
        return TrackedRun(client, experiment_id, run.info.run_id, run_id, trainings_id)
