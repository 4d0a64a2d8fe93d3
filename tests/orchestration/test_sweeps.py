"""A sweep is a set of partitions with a run each; another process trained its policies."""

import shutil
from dataclasses import replace

import dagster as dg
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

from nvtrader_pipelines.orchestration import PipelineError, materialize, sensors
from nvtrader_pipelines.orchestration.instance import open_instance
from nvtrader_pipelines.orchestration.materialize import run_pipeline
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.runs.market_state import market_digest, record_market_digest
from nvtrader_pipelines.runs.planning import JudgedRuns
from nvtrader_pipelines.runs.stored_run import RunWriter
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import STRESS
from tests.homes import KEY, SWEEP, SWEPT, run_job, run_market, small_home, step_errors

TRAINED = dg.AssetKey(["policies", "trained_policy"])


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture(scope="module")
def market_home(swept_home, tmp_path_factory):
    """A home with a market and the file of the sweep; of each variant one test makes the run."""
    home = small_home(tmp_path_factory.mktemp("sweeps") / "home")
    (home.experiments / "tiny.yaml").unlink()
    (home.experiments / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    shutil.copytree(swept_home.policies, home.policies)
    state = market_digest(home)
    with dg.DagsterInstance.ephemeral() as instance:
        assert run_market(home, instance).success
    record_market_digest(home, state)
    return home


@pytest.fixture
def home(market_home, monkeypatch):
    """That home, for a test that may open its instance."""
    monkeypatch.setenv("DAGSTER_HOME", "")  # set by opening an instance, and set back after
    return market_home


@pytest.mark.nightly
@pytest.mark.slow
def test_sensor_requests_materialize_one_variant_each(home, instance):
    with dg.build_sensor_context(instance=instance) as context:
        result = sensors.experiment_file(context, store=Store(home))
    (added,) = result.dynamic_partitions_requests
    instance.add_dynamic_partitions(added.partitions_def_name, added.partition_keys)
    first = result.run_requests[0]
    finished = run_job(home, "experiment", instance, partition_key=first.partition_key)
    assert finished.success, step_errors(finished)
    assert instance.get_materialized_partitions(TRAINED) == {SWEPT[0]}
    (run,) = Store(home).ledger.runs().filter(partition_key=SWEPT[0]).to_dicts()
    assert run["status"] == "done"
    assert run["dagster_run_id"] == finished.run_id


@pytest.mark.slow
def test_sweep_is_one_dagster_run_per_partition(swept_home, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", "")
    with open_instance(Store(swept_home)) as instance:
        assert instance.get_dynamic_partitions(EXPERIMENTS.name) == [KEY, *SWEPT]
        assert instance.get_materialized_partitions(TRAINED) == {KEY, *SWEPT}
        runs = instance.get_runs(dg.RunsFilter(job_name="experiment"))
    assert sorted(run.tags["dagster/partition"] for run in runs) == sorted([KEY, *SWEPT])


@pytest.mark.nightly
@pytest.mark.slow
def test_run_stopped_by_a_check_is_closed_and_resumes(home, monkeypatch):
    keep, store, key = RunWriter.store_record, Store(home), SWEPT[1]
    name = key.partition("@")[0]
    for is_known in ("is_contest_judged", "is_promotion_current"):  # what follows the runs is the same after every run
        monkeypatch.setattr(materialize, is_known, lambda *_: True)

    def spoilt(store, record) -> None:
        curves = record.equity_curves.with_columns(equity=pl.col("equity") * 1.0001)
        keep(store, replace(record, equity_curves=curves))

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "store_record", spoilt)
        with pytest.raises(PipelineError):
            run_pipeline(Store(home), [name], quiet=True)
    (run,) = store.ledger.runs().filter(partition_key=key).to_dicts()
    assert run["status"] == "interrupted"
    assert run["message"] == f"the Dagster run {run['dagster_run_id']} ended before it did"
    assert not JudgedRuns(store).current_run(key)

    assert run_pipeline(Store(home), [name], quiet=True).names == [name]
    run_id = JudgedRuns(store).current_run(key)
    assert (run_id, store.ledger.run(run_id).status) == (run["run_id"], "done")

    before, rows = store.ledger.runs(), store.tables.read(STRESS)
    store.tables.replace(STRESS, rows.clear(), {"spec_hash": [store.ledger.run(run_id).spec_hash], "run_id": [run_id]})
    assert JudgedRuns(store).missing_tables(run_id) == [STRESS]
    run_pipeline(Store(home), [name], quiet=True)
    assert JudgedRuns(store).missing_tables(run_id) == []
    assert_frame_equal(store.tables.read(STRESS), rows, check_row_order=False)
    assert store.ledger.runs().equals(before)  # nothing was trained or tested for it


def replayed(home, instance, **config) -> dg.ExecuteInProcessResult:
    """The job `replay`."""
    return run_job(home, "replay", instance, ops={"replay_policies": {"config": config}})


@pytest.mark.slow
def test_replay_job_is_a_child_run_of_the_same_version(swept_home, instance):
    parent = Store(swept_home).policies.read_latest(SWEPT[1])
    window = {"first": "2017-02-01", "last": "2017-04-28"}
    finished = replayed(swept_home, instance, run_id=parent.run_id[:8], **window)
    assert finished.success, step_errors(finished)
    (row,) = Store(swept_home).ledger.runs().filter(dagster_run_id=finished.run_id).to_dicts()
    assert (row["kind"], row["status"], row["parent_run_id"]) == ("replay", "done", parent.run_id)
    assert (str(row["window_first"]), str(row["window_last"])) == tuple(window.values())
    assert row["spec_hash"] == parent.spec_hash
    again = replayed(swept_home, instance, run_id=parent.run_id, pinned=True, **window)
    assert again.success, step_errors(again)
    assert Store(swept_home).ledger.run(row["run_id"]).dagster_run_id == again.run_id  # the same run once more


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"first": "2016-01-04"}, "a replay must begin on 2016-10-04, the first out-of-sample session"),
        ({"first": "yesterday"}, "Invalid isoformat string"),
        ({"run_id": "zz"}, "no run's id begins with 'zz'"),
    ],
)
def test_impossible_replay_fails_the_job_with_the_reason(swept_home, instance, config, words):
    asked = {"run_id": Store(swept_home).policies.read_latest(SWEPT[0]).run_id, **config}
    finished = replayed(swept_home, instance, **asked)
    assert not finished.success
    assert words in step_errors(finished)
    assert Store(swept_home).ledger.runs().filter(dagster_run_id=finished.run_id).is_empty()
