import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from mlflow import MlflowClient

from nvtrader_pipelines.orchestration import mlflow_tracking
from nvtrader_pipelines.orchestration.mlflow_curves import PROCESS_TAG
from nvtrader_pipelines.orchestration.mlflow_tracking import CURVE_POINTS, MlflowTracking, mean_curve
from nvtrader_pipelines.policies.rollout_tables import TRAINING_CURVE
from nvtrader_pipelines.runs.interruptions import RunHalted
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RUNS
from tests.homes import KEY, N_POLICIES
from tests.orchestration.training_points import end, point


@pytest.fixture(scope="module")
def logged(built_home):
    """The MLflow run of the built home, and a client."""
    client = MlflowClient(f"sqlite:///{built_home.mlflow}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'nvtrader'")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


@pytest.fixture
def tracking(built_home, tmp_path, monkeypatch):
    """A store of its own: a copy, since a new one takes seconds to make."""
    monkeypatch.setattr(mlflow_tracking, "EXPERIMENT", "copied")
    shutil.copy(built_home.mlflow / "mlflow.db", tmp_path / "mlflow.db")
    return MlflowTracking(folder=str(tmp_path))


@pytest.fixture(scope="module")
def plan(built_home):
    """Plan of the built home's run."""
    store = Store(built_home)
    return reopen_plan(store, store.policies.read_latest(KEY))


def verdict(sharpe, n_sessions) -> pl.DataFrame:
    """Verdict on an ensemble over all sessions, with one figure that matters."""
    figures = ("cagr", "max_drawdown", "turnover_per_year", "cost_per_year", "sharpe_difference")
    row = {"kind": "ensemble", "period": "all", "n_sessions": n_sessions, "sharpe": sharpe}
    return pl.DataFrame(row | dict.fromkeys(figures, 0.0))


def status(run) -> str:
    return run.tracked.client.get_run(run.mlflow_run_id).info.status


def test_mlflow_run_is_named_after_its_partition_and_finished(logged, built_home):
    _, run = logged
    assert run.info.run_name == KEY
    assert run.info.status == "FINISHED"
    runs = Store(built_home).tables.read(RUNS)
    assert run.info.run_id == runs["mlflow_run_id"][0]
    assert run.data.tags["nvtrader.run_id"] == runs["run_id"][0]


def test_mlflow_parameters_have_the_spec(logged):
    params = logged[1].data.params
    assert params["name"] == "tiny"
    assert params["agent.total_timesteps"] == "3072"
    assert params["environment.lookback"] == "5"
    assert params["seeds"] == "[0, 1, 2]"


def test_mlflow_learning_curve_has_at_most_200_points(logged):
    client, run = logged
    points = client.get_metric_history(run.info.run_id, "mean_reward")
    steps = [point.step for point in points]
    assert 1 < len(steps) <= CURVE_POINTS
    assert steps == sorted(set(steps))
    assert steps[-1] == 3072


def test_mean_curve_of_unequal_epochs_carries_values_on_and_ends_at_the_last():
    rows = [(fold, 0, (fold + 2) * epoch, float(fold)) for fold in range(2) for epoch in range(1, 2 * CURVE_POINTS)]
    points = mean_curve(pl.DataFrame(rows, schema=TRAINING_CURVE, orient="row"))
    assert CURVE_POINTS // 2 < len(points) <= CURVE_POINTS
    assert points[-1] == (3 * (2 * CURVE_POINTS - 1), 0.5)
    assert {reward for _, reward in points[1:]} == {0.5}


def test_mlflow_metrics_are_the_figures_of_the_ensemble(logged):
    metrics = logged[1].data.metrics
    for period in ("before_2017", "from_2017", "all"):
        for name in ("sharpe", "cagr", "max_drawdown", "turnover_per_year", "cost_per_year", "sharpe_difference"):
            assert f"{period}/{name}" in metrics


def test_mlflow_artifacts_include_the_policies(logged, built_home):
    client, run = logged
    sealed = Store(built_home).policies.read_latest(KEY)
    kept = {Path(each.path).name for each in client.list_artifacts(run.info.run_id, sealed.run_id)}
    assert len(sealed.policies) == N_POLICIES
    assert kept == {*sealed.policies, "manifest.json"}


def test_mlflow_input_is_the_panel_by_its_digest(logged, plan):
    (market,) = logged[1].inputs.dataset_inputs
    assert market.dataset.name == "market of landing"
    assert market.dataset.digest == plan.panel_digest[:36]


def test_run_of_a_dead_process_is_killed_when_the_store_opens(tracking):
    with tracking.run("run-4", "name") as run:
        run.tracked.client.set_tag(run.mlflow_run_id, PROCESS_TAG, "1 2000-01-01T00:00:00+00:00")
        tracking.open()
        assert status(run) == "KILLED"


def test_deletion_removes_the_run_and_its_trainings(tracking):
    with tracking.run("run-5", "name") as run, run.live_curves("tiny") as log:
        log(point(128))
    tracking.delete("run-5")
    client, *experiment_ids = tracking.open()
    left = client.search_runs(experiment_ids, "tags.`nvtrader.run_id` = 'run-5'")
    assert list(left) == []


def test_replay_has_one_mlflow_run_below_that_of_its_parent(tracking, plan):
    with tracking.track(plan) as parent:
        pass
    replay = replace(plan, kind="replay", parent_run_id=plan.run_id)
    for _ in range(2):
        with tracking.track(replay) as tracked:
            pass
    client, experiment_id, _ = tracking.open()
    (run,) = client.search_runs([experiment_id], "tags.kind = 'replay'")
    assert (run.info.run_id, run.info.run_name) == (tracked.mlflow_run_id, f"replay of {KEY}")
    assert run.data.tags["parent_run_id"] == plan.run_id
    assert run.data.tags["mlflow.parentRunId"] == parent.mlflow_run_id
    assert run.data.tags["window"] == "2016-10-04 to 2018-01-02"
    assert run.data.params["agent.total_timesteps"] == "3072"
    tracking.delete(replay.run_id)
    assert [run.info.run_id for run in client.search_runs([experiment_id])] == [parent.mlflow_run_id]


def test_forward_run_that_has_grown_shows_its_last_figures(tracking):
    with tracking.run("run-8", "name") as run:
        for sharpe, n_sessions in ((0.5, 100), (0.25, 140)):
            run.log_verdict(verdict(sharpe, n_sessions))
    logged = run.tracked.client.get_run(run.mlflow_run_id)
    assert logged.data.metrics["all/sharpe"] == 0.25


@pytest.mark.parametrize("interruption", [RunHalted("by ann"), KeyboardInterrupt()])
def test_killed_mlflow_run_is_reused_and_finished(tracking, interruption):
    with pytest.raises(type(interruption)), tracking.run("run-1", "first") as failed:
        raise interruption
    assert status(failed) == "KILLED"
    with tracking.run("run-1", "again") as found:
        assert found.mlflow_run_id == failed.mlflow_run_id
        assert status(found) == "RUNNING"
    assert status(found) == "FINISHED"
    with tracking.run("run-2", "other") as other:
        assert other.mlflow_run_id != failed.mlflow_run_id


def test_logging_on_a_retry_duplicates_nothing(tracking, tmp_path):
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "fold-0-seed-0.zip").write_bytes(b"policy")
    points = [(step, step / 10) for step in range(CURVE_POINTS)]
    for _ in range(2):
        with tracking.run("run-1", "name") as run:
            tracked = run.tracked
            tracked.log_verdict(verdict(sharpe=0.5, n_sessions=100))
            tracked.log_curve("mean_reward", points)
            tracked.log_files(folder)
    history = tracked.client.get_metric_history(tracked.mlflow_run_id, "mean_reward")
    assert [(point.step, point.value) for point in history] == points
    assert len(tracked.client.get_metric_history(tracked.mlflow_run_id, "all/sharpe")) == 1
    assert [each.path for each in tracked.client.list_artifacts(tracked.mlflow_run_id)] == ["policies", "verdict.csv"]
    assert tracked.metadata["mlflow_path"] == f"#/experiments/{tracked.experiment_id}/runs/{tracked.mlflow_run_id}"


def test_log_curve_too_many_points_raises(tracking):
    with pytest.raises(ValueError), tracking.run("run-3", "x") as run:
        run.tracked.log_curve("loss", [(step, 0.0) for step in range(CURVE_POINTS + 1)])
    assert status(run) == "FAILED"


def test_store_damaged_during_a_run_is_one_warning(tracking, tmp_path):
    warnings, database = [], tmp_path / "mlflow.db"
    with tracking.run("run-6", "name", warnings.append) as run, run.live_curves("tiny") as log:
        log(point(128))
        database.write_bytes(bytes(9000))
        log(point(256))
        log(end())
        run.log(lambda tracked: tracked.log_training(pl.DataFrame({"timesteps": [1], "mean_reward": [0.5]}), tmp_path))
        run.log_verdict(pl.DataFrame({"kind": ["ensemble"]}))
    assert len(warnings) == 1
    assert run.mlflow_run_id in run.metadata.values()
    database.unlink()
    database.mkdir()
    with tracking.run("run-6", "name", warnings.append):
        pass
    assert len(warnings) == 1


def test_error_of_a_run_passes_a_store_that_failed(tmp_path):
    (tmp_path / "mlflow").write_bytes(b"")
    warnings, tracking = [], MlflowTracking(folder=str(tmp_path / "mlflow"))
    with pytest.raises(FileNotFoundError), tracking.run("run-7", "name", warnings.append) as run:
        raise FileNotFoundError("of the training")
    assert (run.mlflow_run_id, run.metadata, len(warnings)) == (None, {}, 1)
