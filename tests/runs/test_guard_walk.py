"""Comparison of a run's guards, and its command, on a home with a run of a rule."""

import json
from pathlib import Path

import pytest

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.policies.baselines import EqualWeight, MinimumVariance
from nvtrader_pipelines.portfolio.pipeline.loss_shutdown import LossShutdown
from nvtrader_pipelines.runs.guard_walk import walk_guards
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.train_walk_judge import train_run
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from nvtrader_pipelines.service.cli.pages.guard_page import MAX_SLICES
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.specs import store_experiment
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS
from tests.runs.small_runs import EXPERIMENT, run_whole, small_home

pytestmark = pytest.mark.slow

SPEC = EXPERIMENT.model_copy(
    update={
        "name": "ruled",
        "agent": MinimumVariance(history=21, estimate_every=21),
        "seeds": (0,),
        "pipeline": EXPERIMENT.pipeline.model_copy(update={"timing": LossShutdown(probe=0.1)}),
        "report_from": None,
    }
)
N_SESSIONS = 20


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Store with a judged run of the rule, and its file."""
    store = small_home(tmp_path_factory.mktemp("guards") / "home")
    store.ledger.register(SPEC)
    list(run_whole(store, SPEC.partition_key, Launch("task")))
    store_experiment(store.home, SPEC)
    return store


@pytest.fixture(scope="module")
def walk(store):
    """Comparison of the run's guards."""
    return drain(walk_guards(store, SPEC, N_SESSIONS))


def test_slices_lie_in_the_tests_of_the_fold_in_force(store, walk):
    folds = {fold.index: fold for fold in walk.run.folds}
    sessions = store.tables.read(EQUITY_CURVES).filter(policy="ruled")["session"]
    for each in walk.comparison.slices:
        fold = folds[each.fold]
        assert fold.train_last < fold.test_first <= each.first_session < each.last_session <= fold.test_last
        assert sessions.is_between(each.first_session, each.last_session).sum() == N_SESSIONS
    assert {each.fold for each in walk.comparison.slices} == set(folds)


def test_first_slice_repeats_the_run_that_opened_with_it(store, walk):
    curves, first = store.tables.read(EQUITY_CURVES).sort("session"), walk.comparison.slices[0]
    verdict = store.tables.read(EVALUATIONS).filter(kind="ensemble", period="all")
    assert (walk.baseline, walk.is_best_baseline) == (verdict["best_baseline"][0], True)
    for name, growth in (("ruled", first.guarded_return), (walk.baseline, first.baseline_return)):
        expected = (1.0 + curves.filter(policy=name)["net_return"].head(N_SESSIONS)).product() - 1.0
        assert growth == pytest.approx(expected, abs=1e-12)
    assert first.unguarded_return != pytest.approx(first.guarded_return, abs=1e-6)
    assert walk.comparison.telemetry.shutdown_rate > 0.0


def test_command_writes_document_and_picture(command, store, walk, tmp_path):
    path = str(store.home.experiments / "ruled.yaml")
    options = ("--sessions", str(N_SESSIONS), "-o", str(tmp_path / "ruled.png"), "--json")
    document = json.loads(command(store.home)("guards", "compare", path, *options).stdout)
    assert document["readiness"] == walk.comparison.readiness
    assert document["return_difference"]["low"] == walk.comparison.return_difference.low
    assert document["slices"][1]["telemetry"]["n_shutdown"] == walk.comparison.slices[1].telemetry.n_shutdown
    assert Path(document["picture"]).read_bytes().startswith(b"\x89PNG")


def test_page_with_readiness_fits_a_screen(command, store):
    path = str(store.home.experiments / "ruled.yaml")
    lines = command(store.home)("guards", "compare", path, "--sessions", "5").stdout.splitlines()
    (first,) = (i for i, line in enumerate(lines) if line.startswith(f"{SPEC.partition_key}: open; "))
    assert len(lines) - first <= 24
    assert sum(line.lstrip()[:2] == "20" for line in lines[first:]) == MAX_SLICES


def test_version_without_run_is_refused(store):
    other = SPEC.model_copy(update={"name": "untried"})
    with pytest.raises(StorageError):
        next(walk_guards(store, other, N_SESSIONS))


def test_timing_without_guards_is_refused(store, command):
    store_experiment(store.home, EXPERIMENT)
    found = command(store.home)("guards", "compare", str(store.home.experiments / "small.yaml"))
    assert (found.exit_code, "that of small is constant" in found.stderr) == (BAD_INPUT, True)


def test_run_without_verdict_is_compared_with_equal_weights(store):
    unjudged = SPEC.model_copy(update={"name": "unjudged", "agent": EqualWeight()})
    plan = read_plan(store, store.ledger.register(unjudged))
    list(train_run(store, plan, Launch("task")))
    walk = drain(walk_guards(store, unjudged, N_SESSIONS))
    assert (walk.baseline, walk.is_best_baseline) == ("equal_weight", False)
    first = walk.comparison.slices[0]
    assert first.unguarded_return == pytest.approx(first.baseline_return, abs=1e-12)
