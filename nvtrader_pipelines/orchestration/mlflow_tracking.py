"""MLflow resource: one MLflow run per experiment run, reused on a retry."""

import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import dagster as dg
import polars as pl

from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.orchestration.mlflow_curves import (
    N_LISTED,
    PROCESS_TAG,
    RUN_TAG,
    LiveCurves,
    end_status,
    is_mark_alive,
    process_mark,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "nvtrader"  # of MLflow, with a run per experiment run
TRAININGS = "nvtrader trainings"  # of MLflow, with a run per fold and seed
CURVE_POINTS = 200
ARTIFACTS = "/warehouse/mlflow/artifacts"  # end of the URI of a home's artifacts
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
    def path(self) -> str:
        """Path of the run in the MLflow web page."""
        return f"#/experiments/{self.experiment_id}/runs/{self.mlflow_run_id}"

    @property
    def metadata(self) -> dict[str, str]:
        """Asset metadata that links to the run."""
        return {"mlflow_run_id": self.mlflow_run_id, "mlflow_path": self.path}

    def log_plan(self, plan: RunPlan) -> None:
        """Log the spec, the warnings and the market, before the training."""
        from mlflow.entities import Dataset, DatasetInput, InputTag  # takes seconds to import

        spec, panel = plan.spec.model_dump(mode="json"), plan.panel
        self.log({**flatten(spec), "warnings": " ".join(plan.warnings)}, {})
        self.client.log_dict(self.mlflow_run_id, spec, "experiment.yaml")
        charts = curves_path(self.trainings_id, f"tags.`{RUN_TAG}` = '{self.run_id}'")
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
        self.client.log_inputs(
            self.mlflow_run_id, [DatasetInput(market, [InputTag("mlflow.data.context", "training")])]
        )

    @contextmanager
    def live_curves(self, name: str) -> Iterator[LiveCurves]:
        """Yield the live curves of an experiment's trainings, and end them with the context."""
        curves = LiveCurves(self.client, self.trainings_id, self.run_id, name)
        try:
            yield curves
        except BaseException as error:
            curves.close(end_status(error))
            raise
        curves.close("FINISHED")

    def log_training(self, curves: pl.DataFrame, folder: Path) -> None:
        """Log the mean learning curve and the policy files."""
        mean = curves.group_by("timesteps").agg(pl.col("mean_reward").mean()).sort("timesteps")
        self.log_curve("mean_reward", list(mean.iter_rows()))
        self.log_files(folder)

    def log_verdict(self, verdict: pl.DataFrame) -> None:
        """Log the figures of the ensemble per period, and the whole verdict as a file."""
        names = ("sharpe", "cagr", "max_drawdown", "turnover_per_year", "cost_per_year", "sharpe_difference")
        rows = verdict.filter((pl.col("kind") == "ensemble") & (pl.col("period") != "fold"))
        metrics = {
            f"{period}/{name}": value
            for period, *values in rows.select("period", *names).iter_rows()
            for name, value in zip(names, values, strict=True)
            if value is not None
        }
        self.log({}, metrics)
        self.client.log_text(self.mlflow_run_id, verdict.write_csv(), "verdict.csv")

    def log_pictures(self, folder: Path, partition_key: str) -> None:
        """Log the plots of an experiment, which `folder` holds by asset."""
        for path in sorted(folder.glob(f"*/{partition_key}/*.png")):
            self.client.log_artifact(self.mlflow_run_id, str(path), f"pictures/{path.parents[1].name}")

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


def curves_path(trainings_id: str, search: str = "") -> str:
    """Path of the charts of trainings in the MLflow web page, restricted by a search."""
    query = {**({"searchFilter": search} if search else {}), "compareRunsMode": "CHART"}
    return f"#/experiments/{trainings_id}/runs?{urlencode(query, quote_via=quote)}"


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
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # MLflow would report its use over the network
        from mlflow import MlflowClient  # takes seconds to import

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs every table it creates
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        return MlflowClient(f"sqlite:///{self.folder}/mlflow.db")

    def delete(self, run_id: str) -> None:
        """Delete the MLflow runs of an experiment run and their artifacts, if there are any."""
        if not (Path(self.folder) / "mlflow.db").exists():
            return
        client, *experiment_ids = self.open()
        for run in client.search_runs(experiment_ids, f"tags.`{RUN_TAG}` = '{run_id}'", max_results=N_LISTED):
            shutil.rmtree(Path(self.folder) / "artifacts" / run.info.run_id, ignore_errors=True)
            client.delete_run(run.info.run_id)

    def open(self) -> "tuple[MlflowClient, str, str]":
        """Open the MLflow store of the home, and mark the runs of dead processes as killed.

        Returns:
            The client, and the ids of the MLflow experiments with runs and with trainings.
        """
        client = self._client()
        artifacts = (Path(self.folder) / "artifacts").as_uri()
        found = client.get_experiment_by_name(EXPERIMENT)
        if found and found.artifact_location != artifacts and found.artifact_location.endswith(ARTIFACTS):
            rewrite_artifact_uris(Path(self.folder) / "mlflow.db", found.artifact_location, artifacts)
        names = (EXPERIMENT, TRAININGS)
        known = {each.name: each.experiment_id for each in map(client.get_experiment_by_name, names) if each}
        runs_id, trainings_id = (known.get(name) or client.create_experiment(name, artifacts) for name in names)
        for run in client.search_runs([runs_id, trainings_id], "attributes.status = 'RUNNING'", max_results=N_LISTED):
            mark = run.data.tags.get(PROCESS_TAG)
            if mark and not is_mark_alive(mark):
                client.set_terminated(run.info.run_id, "KILLED")
        return client, runs_id, trainings_id

    @contextmanager
    def run(self, run_id: str, name: str) -> Iterator[TrackedRun]:
        """Open the MLflow run of an experiment run, found by its tag or new."""
        client, experiment_id, trainings_id = self.open()
        runs = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run_id}'", max_results=1)
        run = runs[0] if runs else client.create_run(experiment_id, tags={RUN_TAG: run_id}, run_name=name)
        client.set_tag(run.info.run_id, PROCESS_TAG, process_mark())
        client.update_run(run.info.run_id, "RUNNING")
        tracked = TrackedRun(client, experiment_id, run.info.run_id, run_id, trainings_id)
        try:
            yield tracked
        except BaseException as error:
            client.set_terminated(run.info.run_id, end_status(error))
            raise
        client.set_terminated(run.info.run_id, "FINISHED")
