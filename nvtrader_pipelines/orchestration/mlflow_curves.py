"""Curves of trainings in MLflow while they run: one MLflow run per fold and seed."""

from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING

from nvtrader_pipelines.experiments.plan import FoldSeed
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.storage.ledger.processes import host_name, is_alive, this_process

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

RUN_TAG = "nvtrader.run_id"
PROCESS_TAG = "nvtrader.process"
MAX_POINTS = 32  # per curve: a point takes MLflow a millisecond, and a short training a second
SECONDS_BETWEEN_WRITES = 5.0
N_LISTED = 10_000  # more than folds and seeds of a run
PACE = "steps_per_second"  # of the whole run, not of one training


@dataclass
class _Training:
    """MLflow run of one fold and seed."""

    mlflow_run_id: str
    last_timesteps: int = 0  # of the last logged point
    pending: "list[Metric]" = field(default_factory=list)


class LiveCurves:
    """MLflow runs of the folds and seeds of a run, each with the curves of its training.

    Only the process that follows the progress of all trainings writes. A resumed training repeats the points since its
    checkpoint; only those after the last logged point are written. The runs have an MLflow experiment of their own: in
    that of the experiment runs, the page would hide them below those, and their charts below the verdicts.
    """

    def __init__(self, client: "MlflowClient", experiment_id: str, run_id: str, name: str) -> None:
        self._client, self._experiment_id, self._run_id = client, experiment_id, run_id
        self._name, self._tags = name, {RUN_TAG: run_id, PROCESS_TAG: process_mark(), "experiment": name}
        self._found = {(int(run.data.tags["fold"]), int(run.data.tags["seed"])): run for run in self._runs()}
        self._open: dict[FoldSeed, _Training] = {}
        self._written_at = monotonic()

    def log(self, step: Progress) -> None:
        """Log the point of a training; it is written within seconds. Other steps are ignored."""
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
        """Write the last points and end the open MLflow runs; after `FINISHED`, end all of them."""
        for key in list(self._open):
            self._finish(key, status)
        if status == "FINISHED":  # a process may have been killed after it stored a policy and before this
            for run in self._runs():
                if run.info.status != status:
                    self._client.set_terminated(run.info.run_id, status)

    def _add_point(self, key: FoldSeed, step: Progress) -> None:
        from mlflow.entities import Metric  # takes seconds to import

        timesteps, total = step.timesteps or 0, step.total_timesteps or 1
        training = self._open.get(key) or self._start(key)
        if timesteps * MAX_POINTS // total > training.last_timesteps * MAX_POINTS // total:
            training.last_timesteps, at = timesteps, int(step.timestamp.timestamp() * 1000)
            figures = {name: value for name, value in step.metrics.items() if name != PACE}
            training.pending += [Metric(name, value, at, timesteps) for name, value in figures.items()]

    def _start(self, key: FoldSeed) -> _Training:
        fold, seed = key
        run = self._found.get(key)
        if run is None:
            name, tags = f"fold {fold} seed {seed} {self._name}", {**self._tags, "fold": str(fold), "seed": str(seed)}
            training = _Training(self._client.create_run(self._experiment_id, tags=tags, run_name=name).info.run_id)
        else:
            for name, value in self._tags.items():
                self._client.set_tag(run.info.run_id, name, value)
            self._client.update_run(run.info.run_id, "RUNNING")
            points = self._client.get_metric_history(run.info.run_id, "mean_reward")
            training = _Training(run.info.run_id, max((point.step for point in points), default=0))
        self._open[key] = training
        return training

    def _runs(self) -> "list[Run]":
        tagged = f"tags.`{RUN_TAG}` = '{self._run_id}'"
        return list(self._client.search_runs([self._experiment_id], tagged, max_results=N_LISTED))

    def _write(self, training: _Training) -> None:
        """Write the pending points."""
        self._client.log_batch(training.mlflow_run_id, metrics=training.pending)
        training.pending = []

    def _finish(self, key: FoldSeed, status: str) -> None:
        training = self._open.pop(key)
        self._write(training)
        self._client.set_terminated(training.mlflow_run_id, status)


def process_mark() -> str:
    """Id, start time and machine of this process, by which MLflow runs of dead processes are found."""
    number, started_at = this_process()
    return f"{number} {started_at.isoformat()} {host_name()}"


def is_mark_alive(mark: str) -> bool:
    """Whether the process with this mark is alive, or on another machine, which alone knows."""
    number, started_at, *machine = mark.split(" ", 2)
    return machine not in ([], [host_name()]) or is_alive(int(number), datetime.fromisoformat(started_at))
