import shutil

import pytest
from mlflow import MlflowClient

from nvtrader_pipelines.orchestration import mlflow_curves, mlflow_tracking
from nvtrader_pipelines.orchestration.mlflow_curves import MAX_POINTS, LiveCurves
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from tests.homes import N_POLICIES
from tests.orchestration.training_points import TOTAL, end, point

STEP = TOTAL // MAX_POINTS


@pytest.fixture
def tracking(built_home, tmp_path, monkeypatch):
    """A copy of the built home's store, with new experiments of MLflow."""
    monkeypatch.setattr(mlflow_tracking, "EXPERIMENT", "copied")
    monkeypatch.setattr(mlflow_tracking, "TRAININGS", "copied trainings")
    shutil.copy(built_home.mlflow / "mlflow.db", tmp_path / "mlflow.db")
    return MlflowTracking(folder=str(tmp_path))


@pytest.fixture
def opened(tracking):
    """Client, and id of the trainings' experiment."""
    client, _, trainings_id = tracking.open()
    return client, trainings_id


def statuses(opened):
    client, trainings_id = opened
    return {int(run.data.tags["seed"]): run.info.status for run in client.search_runs([trainings_id])}


def history(opened, name, seed=0):
    client, trainings_id = opened
    (run,) = client.search_runs([trainings_id], f"tags.seed = '{seed}'")
    return [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]


def test_built_home_has_the_curves_of_every_fold_and_seed(built_home):
    client = MlflowClient(f"sqlite:///{built_home.mlflow}/mlflow.db")
    found = client.get_experiment_by_name("nvtrader trainings")
    runs = client.search_runs([found.experiment_id])
    assert len({(run.data.tags["fold"], run.data.tags["seed"]) for run in runs}) == len(runs) == N_POLICIES
    assert {run.info.status for run in runs} == {"FINISHED"}
    names = {"mean_reward", "time/fps", "train/approx_kl", "train/entropy_loss", "train/explained_variance"}
    for run in runs:
        assert set(run.data.metrics) >= {*names, "train/loss"}
        steps = [each.step for each in client.get_metric_history(run.info.run_id, "mean_reward")]
        assert steps == sorted(set(steps))
        assert (steps[0], steps[-1]) == (128, 3072)


def test_points_are_written_while_the_training_runs(opened, monkeypatch):
    monkeypatch.setattr(mlflow_curves, "SECONDS_BETWEEN_WRITES", 0.0)
    curves = LiveCurves(*opened, "run", "tiny")
    curves.log(point(STEP, 0.25))
    assert statuses(opened) == {0: "RUNNING"}
    assert history(opened, "train/loss") == [(STEP, -0.25)]
    curves.log(end())
    assert statuses(opened) == {0: "FINISHED"}


def test_curve_has_at_most_32_points(opened):
    curves = LiveCurves(*opened, "run", "tiny")
    for timesteps in range(STEP // 4, TOTAL + 1, STEP // 4):
        curves.log(point(timesteps))
    curves.close("FINISHED")
    assert [step for step, _ in history(opened, "mean_reward")] == list(range(STEP, TOTAL + 1, STEP))


def test_resumed_training_continues_its_curve_without_repeated_points(opened):
    first = LiveCurves(*opened, "run", "tiny")
    for timesteps in (STEP, 2 * STEP, 3 * STEP):
        first.log(point(timesteps, timesteps / TOTAL))
    first.close("KILLED")
    assert statuses(opened) == {0: "KILLED"}
    resumed = LiveCurves(*opened, "run", "tiny")
    for timesteps in (2 * STEP, 3 * STEP, 4 * STEP):  # from a checkpoint after the first point
        resumed.log(point(timesteps, timesteps / TOTAL))
    resumed.close("FINISHED")
    assert history(opened, "mean_reward") == [(n * STEP, n / MAX_POINTS) for n in (1, 2, 3, 4)]


def test_completed_run_finishes_trainings_that_a_kill_left_open(opened):
    LiveCurves(*opened, "run", "tiny").log(point(STEP))  # killed after its policy was stored
    later = LiveCurves(*opened, "run", "tiny")
    later.log(point(STEP, seed=1))
    later.close("FINISHED")
    assert statuses(opened) == {0: "FINISHED", 1: "FINISHED"}
