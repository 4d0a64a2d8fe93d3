import datetime as dt
import json

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.account_tables import ACTION_LOG, EQUITY, REWARD_TERM
from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.recorded_folds import FoldDates
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.runs.run_tables import complete_run, read_run, replace_run, walk_forward_runs, write_record
from nvtrader_pipelines.storage.tables import EVALUATIONS, RUNS, TRAINING_CURVES, TRAJECTORIES
from tests.storage.table_rows import AT, SPEC_HASH, conform

FOLDS = tuple(
    FoldDates(
        index=index,
        train_first=dt.date(2010 + index, 1, 4),
        train_last=dt.date(2018 + index, 12, 20),
        test_first=dt.date(2019 + index, 1, 2),
        test_last=dt.date(2019 + index, 12, 31),
    )
    for index in (0, 1)
)


FORESEEING = tuple(
    fold.model_copy(
        update={
            "train_first": dt.date(2010, 1, 4),
            "train_last": dt.date(2022, 12, 30),
            "train": ((dt.date(2010, 1, 4), dt.date(2017, 12, 20)), (dt.date(2021, 2, 1), dt.date(2022, 12, 30))),
        }
    )
    for fold in FOLDS
)  # trained before and after what they test


def run_named(run_id, kind="walk_forward", folds=FOLDS):
    return SealedRun(
        partition_key="a@55555555",
        experiment="a",
        spec_hash=SPEC_HASH,
        run_id=run_id,
        kind=kind,
        parent_run_id=None if kind == "walk_forward" else "0" * 16,
        source="sample",
        panel_digest="d",
        code_version="1",
        seeds=(0, 1, 2),
        folds=folds,
        chosen={},
        snapshot_ids={"gold.returns": 2, "gold.features": 1},
        warnings=("w",),
        policies={"fold-0-seed-0.zip": "0" * 64},
    )


def curve(*rewards):
    rows = [(0, 0, i, reward) for i, reward in enumerate(rewards)]
    return conform(
        TRAINING_CURVES, pl.DataFrame(rows, schema=["fold", "seed", "timesteps", "mean_reward"], orient="row")
    )


@pytest.mark.slow
def test_replace_run_writes_keys_and_leaves_other_runs(store):
    first, second = run_named("1" * 16), run_named("2" * 16)
    replace_run(store, TRAINING_CURVES, curve(1.0, 2.0), first)
    for rewards in ((3.0,), (4.0, 5.0, 6.0)):
        assert replace_run(store, TRAINING_CURVES, curve(*rewards), second) == len(rewards)
    assert read_run(store, TRAINING_CURVES, first)["mean_reward"].to_list() == [1.0, 2.0]
    found = read_run(store, TRAINING_CURVES, second)
    assert found["mean_reward"].to_list() == [4.0, 5.0, 6.0]
    assert found["run_id"].unique().to_list() == ["2" * 16]


def test_replace_run_adds_the_experiment_where_it_is_a_column(store):
    run = run_named("1" * 16)
    replace_run(store, EVALUATIONS, conform(EVALUATIONS, pl.DataFrame({"policy": ["a"]})), run)
    assert read_run(store, EVALUATIONS, run)["experiment"].to_list() == ["a"]


def test_complete_run_twice_leaves_one_row(store):
    run = run_named("1" * 16)
    for hours in (0, 1):
        complete_run(store, run, AT + dt.timedelta(hours=hours), "mlflow")
    (row,) = store.tables.read(RUNS).rows(named=True)
    assert (row["seeds"], row["n_policies"], row["warnings"]) == ([0, 1, 2], 1, ["w"])
    assert row["finished_at"] == AT + dt.timedelta(hours=1)
    assert json.loads(row["snapshot_ids"]) == run.snapshot_ids
    assert row["policies_sha256"] == run.sha256
    assert (row["kind"], row["parent_run_id"]) == ("walk_forward", None)
    assert (row["window_first"], row["window_last"]) == (FOLDS[0].test_first, FOLDS[-1].test_last)


@pytest.mark.slow
def test_walk_forward_runs_omit_replays_and_forward_runs(store):
    for number, kind in enumerate(("walk_forward", "replay", "forward")):
        complete_run(store, run_named(str(number) * 16, kind), AT)
    assert walk_forward_runs(store, ["run_id"])["run_id"].to_list() == ["0" * 16]
    assert store.tables.read(RUNS).sort("run_id")["parent_run_id"].to_list() == [None, "0" * 16, "0" * 16]


def test_run_trained_after_its_tests_is_validation_only(store):
    complete_run(store, run_named("1" * 16), AT)
    complete_run(store, run_named("2" * 16, folds=FORESEEING), AT)
    assert walk_forward_runs(store, ["run_id", "validation_only"]).sort("run_id").rows() == [
        ("1" * 16, False),
        ("2" * 16, True),
    ]


@pytest.mark.slow
def test_write_record_keeps_the_training_episodes(store):
    run = run_named("1" * 16)
    steps = conform(TRAJECTORIES, pl.DataFrame({"policy": ["a"], "phase": ["train"], "fold": [0], "seed": [1]}))
    replace_run(store, TRAJECTORIES, steps, run, phase=["train"])
    empty = [pl.DataFrame(schema=schema) for schema in (EQUITY, ACTION_LOG, REWARD_TERM)]
    for reward in (1.0, 2.0):
        row = {"policy": ["a"], "phase": ["test"], "fold": [0], "reward": [reward]}
        tested = conform(TRAJECTORIES, pl.DataFrame(row)).select(list(TRAJECTORY))
        for _ in write_record(store, run, BacktestRecord(tested, *empty)):
            pass
    found = read_run(store, TRAJECTORIES, run).sort("phase")
    assert found.select("phase", "reward").rows() == [("test", 2.0), ("train", None)]
    assert read_run(store, TRAJECTORIES, run, phase=["train"])["seed"].to_list() == [1]
