"""MLflow resource: one MLflow run per experiment run, reused on a retry."""

import logging
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import polars as pl

from nvtrader_pipelines.experiments.plan import RunPlan

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "nvtrader"
RUN_TAG = "nvtrader.run_id"
CURVE_POINTS = 200
ARTIFACTS = "/warehouse/mlflow/artifacts"  # end of the URI of a home's artifacts
PARAM_LENGTH = 500  # longest value of a parameter that MLflow stores


@dataclass(frozen=True)
class TrackedRun:
    """Open MLflow run."""

    client: "MlflowClient"
    experiment_id: str
    mlflow_run_id: str

    @property
    def path(self) -> str:
        """Path of the run in the MLflow web page."""
        return f"#/experiments/{self.experiment_id}/runs/{self.mlflow_run_id}"

    @property
    def metadata(self) -> dict[str, str]:
        """Asset metadata that links to the run."""
        return {"mlflow_run_id": self.mlflow_run_id, "mlflow_path": self.path}

    def log_training(self, plan: RunPlan, curves: pl.DataFrame, folder: Path) -> None:
        """Log the spec, the warnings, the mean learning curve and the policy files."""
        self.log({**flatten(plan.spec.model_dump(mode="json")), "warnings": " ".join(plan.warnings)}, {})
        mean = curves.group_by("timesteps").agg(pl.col("mean_reward").mean()).sort("timesteps")
        self.log_curve("mean_reward", list(mean.iter_rows()))
        self.log_files(folder)

    def log_verdict(self, verdict: pl.DataFrame) -> None:
        """Log the figures of the ensemble per period."""
        names = ("sharpe", "cagr", "max_drawdown", "turnover_per_year", "cost_per_year", "sharpe_difference")
        rows = verdict.filter((pl.col("kind") == "ensemble") & (pl.col("period") != "fold"))
        metrics = {
            f"{period}/{name}": value
            for period, *values in rows.select("period", *names).iter_rows()
            for name, value in zip(names, values, strict=True)
            if value is not None
        }
        self.log({}, metrics)

    def log(self, params: Mapping[str, str], metrics: Mapping[str, float]) -> None:
        """Log parameters and single metrics."""
        from mlflow.entities import Metric, Param  # takes seconds to import

        self.client.log_batch(
            self.mlflow_run_id,
            params=[Param(key, value[:PARAM_LENGTH]) for key, value in params.items()],
            metrics=[Metric(key, value, 0, 0) for key, value in metrics.items()],
        )

    def log_curve(self, name: str, points: list[tuple[int, float]]) -> None:
        """Log a curve of at most 200 points (step, value)."""
        from mlflow.entities import Metric  # takes seconds to import

        if len(points) > CURVE_POINTS:
            raise ValueError(f"curve {name!r} has {len(points)} points, more than {CURVE_POINTS}")
        self.client.log_batch(self.mlflow_run_id, metrics=[Metric(name, value, 0, step) for step, value in points])

    def log_files(self, folder: Path) -> None:
        """Log every file of a folder as an artifact."""
        self.client.log_artifacts(self.mlflow_run_id, str(folder), folder.name)


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten a nested document to dotted names and text."""
    named = {}
    for key, value in content.items():
        named |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return named


def rewrite_artifact_uris(database: Path, old: str, new: str) -> None:
    """Rewrite the recorded URIs of artifacts, after the home was moved or copied."""
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            moved = f"UPDATE {table} SET {column} = ? || substr({column}, ?)"
            inside = f"{column} = ? OR substr({column}, 1, ?) = ?"
            connection.execute(f"{moved} WHERE {inside}", (new, len(old) + 1, old, len(old) + 1, f"{old}/"))


class MlflowTracking(dg.ConfigurableResource):
    """MLflow store under `warehouse/mlflow`."""

    folder: str

    def _client(self) -> "MlflowClient":
        from mlflow import MlflowClient  # takes seconds to import

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs every table it creates
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        return MlflowClient(f"sqlite:///{self.folder}/mlflow.db")

    def delete(self, run_id: str) -> None:
        """Delete the MLflow run of an experiment run and its artifacts, if there is one."""
        if not (Path(self.folder) / "mlflow.db").exists():
            return
        client = self._client()
        found = client.get_experiment_by_name(EXPERIMENT)
        tagged = f"tags.`{RUN_TAG}` = '{run_id}'"
        for run in client.search_runs([found.experiment_id], tagged) if found else ():
            shutil.rmtree(Path(self.folder) / "artifacts" / run.info.run_id, ignore_errors=True)
            client.delete_run(run.info.run_id)

    @contextmanager
    def run(self, run_id: str, name: str) -> Iterator[TrackedRun]:
        """Open the MLflow run of an experiment run, found by its tag or new."""
        client = self._client()
        found = client.get_experiment_by_name(EXPERIMENT)
        artifacts = (Path(self.folder) / "artifacts").as_uri()
        if found and found.artifact_location != artifacts and found.artifact_location.endswith(ARTIFACTS):
            rewrite_artifact_uris(Path(self.folder) / "mlflow.db", found.artifact_location, artifacts)
        experiment_id = found.experiment_id if found else client.create_experiment(EXPERIMENT, artifacts)
        runs = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run_id}'", max_results=1)
        run = runs[0] if runs else client.create_run(experiment_id, tags={RUN_TAG: run_id}, run_name=name)
        tracked = TrackedRun(client, experiment_id, run.info.run_id)
        try:
            yield tracked
        except BaseException:
            client.set_terminated(run.info.run_id, "FAILED")
            raise
        client.set_terminated(run.info.run_id, "FINISHED")
