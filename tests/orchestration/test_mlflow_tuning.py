"""MLflow runs of policies that are tuned to preference pairs."""

from dataclasses import replace
from functools import partial

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.feedback import tuning
from nvtrader_pipelines.orchestration.mlflow_curves import RUN_TAG
from nvtrader_pipelines.orchestration.mlflow_tracking import MLFLOW_PARENT_TAG, MlflowTracking
from nvtrader_pipelines.policies.agents import DpoAgent
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DPO_EPOCHS, RUNS
from tests.feedback.test_pairs import write_alternating_pairs
from tests.homes import register_experiments, run_job
from tests.runs.untrained import EXPERIMENT, market_home, planned, sealed

pytestmark = pytest.mark.slow
TWO_FOLDS = EXPERIMENT.model_copy(update={"splitter": WalkForward(train_months=6, test_months=7)})


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, instance):
    """Store, start, and metadata of the asset that has tuned the start by a few epochs."""
    store = market_home(tmp_path_factory.mktemp("tuned") / "home")
    start = sealed(store, plan := planned(store, TWO_FOLDS))
    write_alternating_pairs(store, start)
    with MlflowTracking.at(store.home).track(plan):
        pass
    register_experiments(store.home, instance, [TWO_FOLDS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "DpoAgent", partial(DpoAgent, total_timesteps=600))
        patch.setattr(tuning, "MIN_PAIRS", 10)
        patch.setattr(tuning, "MIN_DECISIONS", 2)
        result = run_job(store.home, "dpo_check", instance, partition_key=TWO_FOLDS.partition_key)
    (event,) = result.get_asset_materialization_events()
    return Store(store.home), start, event.materialization.metadata


def logged(home, run_id):
    """Client, the MLflow run of a run, and those of its trainings."""
    client, *experiments = MlflowTracking.at(home).open()
    (run,), trainings = (client.search_runs([each], f"tags.`{RUN_TAG}` = '{run_id}'") for each in experiments)
    return client, run, trainings


def test_tuned_run_is_logged_below_the_run_of_its_start(tuned):
    store, start, metadata = tuned
    run_id = metadata["run_id"].value
    _, run, _ = logged(store.home, run_id)
    assert run.data.tags[MLFLOW_PARENT_TAG] == logged(store.home, start.run_id)[1].info.run_id
    assert (run.info.status, run.data.tags["start"]) == ("FINISHED", start.run_id)
    assert (run.data.params["agent.kind"], run.data.params["agent.start"]) == ("dpo", start.run_id)
    ids = {store.ledger.run(run_id).mlflow_run_id, metadata["mlflow_run_id"].value}
    assert ids | set(store.tables.read(RUNS).filter(run_id=run_id)["mlflow_run_id"]) == {run.info.run_id}


def test_curves_of_a_tuning_have_a_point_per_epoch(tuned):
    store, _, metadata = tuned
    client, _, trainings = logged(store.home, metadata["run_id"].value)
    epochs = store.tables.read(DPO_EPOCHS).filter(pl.col("epoch") > 0, split="train")
    assert len(trainings) == len(epochs.select("fold", "seed").unique())
    for run in trainings:
        of_training = epochs.filter(fold=int(run.data.tags["fold"]), seed=int(run.data.tags["seed"]))
        assert len(of_training) > 1
        for name in ("loss", "margin", "accuracy", "kl"):
            points = client.get_metric_history(run.info.run_id, f"train/{name}")
            assert [point.value for point in points] == pytest.approx(of_training[name].to_list())
            assert [point.step for point in points] == of_training["n_pairs"].cum_sum().to_list()


def test_tuned_run_whose_start_mlflow_lacks_is_on_top(tuned):
    store, start, metadata = tuned
    run = store.ledger.run(metadata["run_id"].value)
    plan = reopen_plan(store, store.policies.read_sealed(run.partition_key, run.run_id))
    agent = plan.spec.agent.model_copy(update={"start": start.run_id[::-1]})
    other = replace(plan, spec=plan.spec.model_copy(update={"agent": agent}))
    with MlflowTracking.at(store.home).track(other):
        pass
    tags = logged(store.home, other.run_id)[1].data.tags
    assert tags["start"] == start.run_id[::-1]
    assert MLFLOW_PARENT_TAG not in tags
