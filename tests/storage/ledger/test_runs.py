import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import run_rows
from nvtrader_pipelines.storage.policy_library import policy_file_name
from tests.storage.ledger.run_rows import RUN_ID, event, run_row
from tests.storage.table_rows import AT

LATER = AT + dt.timedelta(hours=1)


def test_begun_run_is_running_in_this_process(ledger):
    row = run_row(ledger, window_first=dt.date(2020, 1, 2), window_last=dt.date(2021, 1, 4))
    ledger.begin(row)
    run = ledger.run(RUN_ID)
    assert run.model_dump(include=set(type(row).model_fields)) == row.model_dump()
    assert (run.status, run.attempts, run.finished_at, run.message) == ("running", 1, None, None)
    assert ledger.close_interrupted() == []


def test_finished_run_has_metrics_and_end_time(ledger):
    ledger.begin(run_row(ledger))
    before = dt.datetime.now(dt.UTC)
    ledger.finish(RUN_ID, "done", metrics={"sharpe": 0.1 + 0.2, "off": float("nan")}, mlflow_run_id="mlflow")
    run = ledger.run(RUN_ID)
    assert (run.status, run.mlflow_run_id, run.metrics) == ("done", "mlflow", {"sharpe": 0.1 + 0.2, "off": None})
    assert before <= run.finished_at <= dt.datetime.now(dt.UTC)


def test_run_begun_again_has_one_more_attempt(ledger):
    ledger.begin(run_row(ledger))
    ledger.finish(RUN_ID, "failed", metrics={"sharpe": 1.0}, message="no disk")
    assert ledger.run(RUN_ID).message == "no disk"
    ledger.begin(run_row(ledger, kind="walk_forward", task_id="second", started_at=LATER))
    run = ledger.run(RUN_ID)
    assert (run.kind, run.task_id, run.started_at) == ("walk_forward", "second", LATER)
    assert (run.status, run.attempts, run.finished_at, run.message) == ("running", 2, None, None)
    ledger.finish(RUN_ID, "done")
    assert ledger.run(RUN_ID).metrics == {"sharpe": 1.0}  # not overwritten


def test_execution_continued_in_another_step_is_the_same_attempt(ledger):
    ledger.begin(run_row(ledger, task_id="same"))
    ledger.begin(run_row(ledger, task_id="same", started_at=LATER))
    assert (ledger.run(RUN_ID).attempts, ledger.run(RUN_ID).started_at) == (1, AT)
    ledger.finish(RUN_ID, "failed")
    ledger.begin(run_row(ledger, task_id="same"))
    assert ledger.run(RUN_ID).attempts == 2


def test_annotation_replaces_the_earlier_one_and_leaves_the_row(ledger):
    ledger.begin(run_row(ledger))
    before = ledger.run(RUN_ID)
    ledger.annotate(RUN_ID, {"tags": "paper", "note": "first"})
    ledger.annotate(RUN_ID, {"tags": "paper, baseline"})
    assert ledger.annotations().rows() == [(RUN_ID, "paper, baseline", "first")]
    assert ledger.run(RUN_ID) == before


def test_run_that_has_not_begun_is_refused(ledger):
    attempts = [
        lambda: ledger.record_event(event()),
        lambda: ledger.finish(RUN_ID, "done"),
        lambda: ledger.record_policies(RUN_ID, {}, "d"),
        lambda: ledger.annotate(RUN_ID, {}),
        lambda: ledger.run(RUN_ID),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError):
            attempt()


def test_run_of_an_unregistered_version_is_refused(ledger):
    other = ExperimentSpec(name="b")
    row = run_row(ledger, spec_hash=other.spec_hash).model_copy(update={"partition_key": other.partition_key})
    with pytest.raises(StorageError):
        ledger.begin(row)


def test_run_id_of_another_version_is_refused(ledger):
    ledger.begin(run_row(ledger))
    with pytest.raises(StorageError):
        ledger.begin(run_row(ledger, ExperimentSpec(name="b")))


def test_events_are_stored_in_order_with_their_fields(ledger):
    ledger.begin(run_row(ledger))
    step = event("train.step", fold=1, seed=2, timesteps=512, total_timesteps=1024, share=0.5, metrics={"mean": 0.25})
    for progress in (event(), step, event("done", timestamp=LATER)):
        ledger.record_event(progress)
    events = ledger.events(RUN_ID)
    assert events["stage"].to_list() == ["start", "train.step", "done"]
    row = events.row(1, named=True)
    assert (row["fold"], row["seed"], row["timesteps"], row["metrics"]) == (1, 2, 512, '{"mean": 0.25}')
    assert (events["timestamp"][2], ledger.events("another").height) == (LATER, 0)


def test_policies_are_recorded_by_fold_and_seed(ledger):
    ledger.begin(run_row(ledger))
    ledger.record_policies(RUN_ID, {policy_file_name((10, 1)): "old"}, "before")
    ledger.record_policies(RUN_ID, {policy_file_name((10, 3)): "b", policy_file_name((2, 3)): "a"}, "now")
    assert ledger.policies(RUN_ID).select("fold", "seed", "sha256").rows() == [(2, 3, "a"), (10, 3, "b")]
    assert ledger.run(RUN_ID).policies_sha256 == "now"
    ledger.begin(run_row(ledger, task_id="second"))
    assert ledger.run(RUN_ID).policies_sha256 == "now"


def test_file_that_is_no_policy_is_refused(ledger):
    ledger.begin(run_row(ledger))
    with pytest.raises(ValueError):
        ledger.record_policies(RUN_ID, {"manifest.json": "a"}, "d")


def test_run_is_found_by_a_unique_prefix_of_its_id(ledger):
    for run_id in ("00aa", "00bb", "10_0"):
        ledger.begin(run_row(ledger, run_id=run_id))
    assert ledger.find_run("00b").run_id == "00bb"
    assert ledger.find_run("10_").run_id == "10_0"
    for stranger in ("00", "ff", "%", "_0", ""):
        with pytest.raises(StorageError):
            ledger.find_run(stranger)


def test_runs_are_listed_latest_first(ledger):
    for hours, run_id in enumerate(("b", "c", "a")):
        ledger.begin(run_row(ledger, run_id=run_id, started_at=AT + dt.timedelta(hours=hours)))
    assert ledger.runs()["run_id"].to_list() == ["a", "c", "b"]
    assert ledger.runs().schema["started_at"] == pl.Datetime("us", "UTC")


def test_new_ledger_has_empty_typed_tables(ledger):
    tables = ledger.tables()
    assert list(tables) == ["specs", "versions", "runs", "policies", "events", "looks", "annotations"]
    assert tables["runs"].schema["window_first"] == pl.Date()
    assert all(frame.is_empty() for frame in tables.values())


def begin_as(monkeypatch, process):
    monkeypatch.setattr(run_rows, "this_process", lambda: process)


def test_run_of_a_dead_process_is_closed_and_can_begin_again(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        begin_as(patch, (2**22 + 1, AT))  # above the highest process number of Linux
        ledger.begin(run_row(ledger))
    ledger.begin(run_row(ledger, run_id="alive"))
    assert ledger.close_interrupted() == [RUN_ID]
    run = ledger.run(RUN_ID)
    assert (run.status, run.message) == (
        "interrupted",
        f"its process {2**22 + 1} on {run.host} ended without reporting",
    )
    assert run.finished_at is not None
    assert ledger.run("alive").status == "running"
    assert ledger.close_interrupted() == []
    ledger.begin(run_row(ledger))
    assert ledger.run(RUN_ID).status == "running"


def test_dagster_run_outlives_the_process_of_a_step(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        begin_as(patch, (2**22 + 1, AT))
        ledger.begin(run_row(ledger, dagster_run_id="dagster"))
    assert ledger.close_interrupted() == []
    assert ledger.close_interrupted(["dagster"]) == [RUN_ID]


def test_run_on_another_machine_is_not_closed(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        begin_as(patch, (2**22 + 1, AT))
        patch.setattr(run_rows, "host_name", lambda: "elsewhere")
        ledger.begin(run_row(ledger))
    assert ledger.close_interrupted() == []


def test_run_of_a_dead_launcher_is_closed_on_any_machine(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(run_rows, "host_name", lambda: "elsewhere")
        ledger.begin(run_row(ledger, dagster_run_id="dagster"))
        ledger.begin(run_row(ledger, run_id="by hand"))
    assert ledger.close_interrupted(["another"]) == []
    assert ledger.close_interrupted(["dagster", "another"]) == [RUN_ID]
    assert ledger.run(RUN_ID).message == "the Dagster run dagster ended before it did"


def test_reason_is_recorded_only_for_runs_of_the_launcher(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        begin_as(patch, (2**22 + 1, AT))
        ledger.begin(run_row(ledger, dagster_run_id="dagster"))
        ledger.begin(run_row(ledger, run_id="by hand"))
    assert sorted(ledger.close_interrupted(["dagster"], "Ctrl-C was pressed")) == [RUN_ID, "by hand"]
    assert ledger.run(RUN_ID).message == "Ctrl-C was pressed"
    assert "ended without reporting" in (ledger.run("by hand").message or "")
