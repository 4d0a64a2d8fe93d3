import datetime as dt
import json

import polars as pl

from nvtrader_pipelines.storage.policy_library import SealedRun
from nvtrader_pipelines.storage.runs import complete, read_run, replace_run
from nvtrader_pipelines.storage.tables import EVALUATIONS, RUNS, TRAINING_CURVES
from tests.storage.frames import AT, SPEC_HASH, in_shape


def run_named(run_id):
    return SealedRun(
        partition_key="a@55555555",
        experiment="a",
        spec_hash=SPEC_HASH,
        run_id=run_id,
        source="sample",
        panel_digest="d",
        snapshot_ids={"gold.returns": 2, "gold.features": 1},
        warnings=("w",),
        policies={"fold-0-seed-0.zip": "0" * 64},
    )


def curve(*rewards):
    rows = [(0, 0, i, reward) for i, reward in enumerate(rewards)]
    return in_shape(
        TRAINING_CURVES, pl.DataFrame(rows, schema=["fold", "seed", "timesteps", "mean_reward"], orient="row")
    )


def test_a_runs_rows_are_named_and_replaced_without_touching_other_runs(lake):
    first, second = run_named("1" * 16), run_named("2" * 16)
    replace_run(lake, TRAINING_CURVES, curve(1.0, 2.0), first)
    for rewards in ((3.0,), (4.0, 5.0, 6.0)):
        assert replace_run(lake, TRAINING_CURVES, curve(*rewards), second) == len(rewards)
    assert read_run(lake, TRAINING_CURVES, first)["mean_reward"].to_list() == [1.0, 2.0]
    found = read_run(lake, TRAINING_CURVES, second)
    assert found["mean_reward"].to_list() == [4.0, 5.0, 6.0]
    assert found["run_id"].unique().to_list() == ["2" * 16]


def test_the_experiment_is_named_where_the_table_has_a_column_for_it(lake):
    run = run_named("1" * 16)
    replace_run(lake, EVALUATIONS, in_shape(EVALUATIONS, pl.DataFrame({"policy": ["a"]})), run)
    assert read_run(lake, EVALUATIONS, run)["experiment"].to_list() == ["a"]


def test_a_judged_run_has_one_row_however_often_it_is_judged(lake):
    run = run_named("1" * 16)
    for hours in (0, 1):
        complete(lake, run, (0, 1, 2), "mlflow", AT + dt.timedelta(hours=hours))
    (row,) = lake.read(RUNS).rows(named=True)
    assert (row["seeds"], row["n_policies"], row["warnings"]) == ([0, 1, 2], 1, ["w"])
    assert row["finished_at"] == AT + dt.timedelta(hours=1)
    assert json.loads(row["snapshot_ids"]) == run.snapshot_ids
    assert row["policies_sha256"] == run.sha256
