import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.scoreboard import trial_history
from nvtrader_pipelines.scoreboard.trial_history import describe_next_trial, trial_curves, trial_runs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES
from tests.runs.test_run_tables import FORESEEING, run_named
from tests.storage.ledger.run_rows import run_row
from tests.storage.table_rows import AT, run_rows

KINDS = ("ensemble", "policy", "baseline")
ENDED = {
    "a": {},
    "b": {"spec": ExperimentSpec(name="b"), "source": "landing"},
    "replayed": {"kind": "replay"},
    "forward": {"kind": "forward"},
    "failed": {"status": "failed"},
    "running": {"status": None},
    "c": {"code_version": "2"},
}


@pytest.fixture
def runs(home, store):
    """A ledger with a few runs of every kind, begun and ended one after the other."""
    ledger = Store(home).ledger
    for run_id, changes in ENDED.items():
        more = {"kind": "walk_forward", "spec": ExperimentSpec(name="a"), **changes}
        status, spec = more.pop("status", "done"), more.pop("spec")
        ledger.begin(run_row(ledger, spec, run_id=run_id, **more))
        if status:
            ledger.finish(run_id, status)
    return trial_runs(store)


def curve(run_id, kind):
    day = dt.date(2020, 1, 2)
    return run_rows(EQUITY_CURVES, run_id, n_rows=2, kind=kind, policy=kind, session=day, net_return=0.01)


def test_trials_are_completed_walk_forward_runs_by_finish_time(runs):
    assert runs.columns == ["run_id", "source", "finished_at", "experiment", "validation_only"]
    assert runs["run_id"].to_list() == ["a", "b", "c"]
    assert runs["source"].to_list() == ["sample", "landing", "sample"]
    assert runs["experiment"].to_list() == ["a", "b", "a"]
    assert runs["finished_at"].is_sorted()


def test_next_trial_is_counted_on_its_market(store, runs):
    names = {source: describe_next_trial(store, source) for source in ("sample", "landing", "yahoo")}
    assert names["sample"].startswith("trial 3 on sample; ")
    assert names["landing"].startswith("trial 2 on landing; ")
    assert names["yahoo"] == "trial 1 on yahoo"


def test_run_trained_past_its_tests_is_validation_only(store, home, runs):
    complete_run(store, run_named("a"), AT)
    complete_run(store, run_named("b", folds=FORESEEING), AT)
    found = trial_runs(store)
    assert found.select("run_id", "validation_only").rows() == [("a", False), ("b", True), ("c", False)]


@pytest.mark.parametrize("at_once", [1, 2, 20])
def test_trial_curves_are_of_ensembles_and_baselines_only(store, runs, at_once, monkeypatch):
    monkeypatch.setattr(trial_history, "RUNS_PER_READ", at_once)
    rows = [curve(run_id, kind) for run_id in ("a", "b", "replayed") for kind in KINDS]
    store.tables.replace(EQUITY_CURVES, pl.concat(rows), {})
    found = trial_curves(store, runs)
    assert found.columns == ["run_id", "policy", "kind", "session", "net_return"]
    counts = {(run_id, kind): n for run_id, kind, n in found.group_by("run_id", "kind").len().rows()}
    assert counts == {(run_id, kind): 2 for run_id in ("a", "b") for kind in ("ensemble", "baseline")}


def test_home_without_runs_has_no_trials(store, home):
    runs = trial_runs(store)
    assert runs.is_empty()
    assert trial_curves(store, runs).is_empty()
