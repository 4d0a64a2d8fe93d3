"""Curves of the trainings of a run in MLflow, while they run."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from nvtrader_pipelines.experiments.plan import FoldSeed
from nvtrader_pipelines.experiments.progress import Progress

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

PARENT_TAG = "mlflow.parentRunId"  # by which the page nests runs
MAX_POINTS = 32  # per curve: a point takes MLflow a millisecond, and a short training a second
SECONDS_BETWEEN_WRITES = 5.0
N_LISTED = 10_000  # more than folds and seeds of a run
PACE = "steps_per_second"  # of the whole run, not of one training


@dataclass
class _Training:
    """MLflow run of one fold and seed."""

    mlflow_run_id: str
    last_timesteps: int = 0  # of the last logged point
    unwritten: "list[Metric]" = field(default_factory=list)


class LiveCurves:
    """MLflow runs of the folds and seeds of a run, each with the curves of its training.

    One process writes: that which follows the progress of all trainings. A resumed training continues its curves after
    their last point, since it repeats the points since its checkpoint.
    """

    def __init__(
        self, client: "MlflowClient", experiment_id: str, parent_id: str, name: str, tags: Mapping[str, str]
    ) -> None:
        self._client, self._experiment_id, self._parent_id = client, experiment_id, parent_id
        self._name, self._tags = name, {**tags, PARENT_TAG: parent_id, "experiment": name}
        self._found = {_key(run): run for run in self.runs_below(client, experiment_id, parent_id)}
        self._open: dict[FoldSeed, _Training] = {}
        self._written_at = monotonic()

    @staticmethod
    def runs_below(client: "MlflowClient", experiment_id: str, parent_id: str) -> "list[Run]":
        """MLflow runs below another."""
        return list(client.search_runs([experiment_id], f"tags.`{PARENT_TAG}` = '{parent_id}'", max_results=N_LISTED))

    def log(self, step: Progress) -> None:
        """Log the point of a training, which is written within seconds; other steps are ignored."""
        if step.fold is None or step.seed is None or step.timesteps is None:
            return
        key = (step.fold, step.seed)
        if step.stage == "train.step":
            self._add_point(key, step)
        elif key in self._open:
            self._finish(key, "FINISHED")
        if monotonic() - self._written_at >= SECONDS_BETWEEN_WRITES:
            self._written_at = monotonic()
            for training in self._open.values():
                self._write(training)

    def close(self, status: str) -> None:
        """Write the last points and end the open MLflow runs; a run that is all trained ends every one as finished."""
        for key in list(self._open):
            self._finish(key, status)
        if status == "FINISHED":  # a kill may have come between the policy and the end of its MLflow run
            for run in self.runs_below(self._client, self._experiment_id, self._parent_id):
                if run.info.status != status:
                    self._client.set_terminated(run.info.run_id, status)

    def _add_point(self, key: FoldSeed, step: Progress) -> None:
        from mlflow.entities import Metric  # takes seconds to import

        timesteps, total = step.timesteps or 0, step.total_timesteps or 1
        training = self._open.get(key) or self._start(key)
        if timesteps * MAX_POINTS // total > training.last_timesteps * MAX_POINTS // total:
            training.last_timesteps, at = timesteps, int(step.timestamp.timestamp() * 1000)
            figures = {name: value for name, value in step.metrics.items() if name != PACE}
            training.unwritten += [Metric(name, value, at, timesteps) for name, value in figures.items()]

    def _start(self, key: FoldSeed) -> _Training:
        fold, seed = key
        run = self._found.get(key)
        if run is None:
            name, tags = f"{self._name} fold {fold} seed {seed}", {**self._tags, "fold": str(fold), "seed": str(seed)}
            training = _Training(self._client.create_run(self._experiment_id, tags=tags, run_name=name).info.run_id)
        else:
            for name, value in self._tags.items():
                self._client.set_tag(run.info.run_id, name, value)
            self._client.update_run(run.info.run_id, "RUNNING")
            points = self._client.get_metric_history(run.info.run_id, "mean_reward")
            training = _Training(run.info.run_id, max((point.step for point in points), default=0))
        self._open[key] = training
        return training

    def _write(self, training: _Training) -> None:
        """Write the points not yet written; without the store a training continues, and the next write tries again."""
        from mlflow import MlflowException  # takes seconds to import

        try:
            self._client.log_batch(training.mlflow_run_id, metrics=training.unwritten)
        except MlflowException as error:
            logging.getLogger(__name__).warning("curves are not in MLflow yet: %s", error)
        else:
            training.unwritten = []

    def _finish(self, key: FoldSeed, status: str) -> None:
        training = self._open.pop(key)
        self._write(training)
        self._client.set_terminated(training.mlflow_run_id, status)


def ending(error: BaseException) -> str:
    """Status of an MLflow run that an error ends: killed by an interrupt, or failed."""
    return "FAILED" if isinstance(error, Exception) else "KILLED"


def _key(run: "Run") -> FoldSeed:
    return int(run.data.tags["fold"]), int(run.data.tags["seed"])
