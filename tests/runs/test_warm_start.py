"""Trainings that start from the policies of an earlier run."""

import datetime as dt
import hashlib

import pytest
import torch

from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.evaluation.splits import PurgedKFold, WalkForward
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.policies.agents import A2cAgent, EnsembleAgent
from nvtrader_pipelines.policies.archive import read_archive, read_stored
from nvtrader_pipelines.policies.backbones import MlpBackbone
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.registration import plan_problem, plan_variants
from nvtrader_pipelines.runs.smoke_run import smoke_run
from nvtrader_pipelines.runs.train_walk_judge import train_run
from nvtrader_pipelines.runs.warm_start import read_start, require_starts
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from tests.runs.untrained import EXPERIMENT, market_home, planned, sealed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return market_home(tmp_path_factory.mktemp("warm") / "home")


@pytest.fixture(scope="module")
def run(store):
    """Run to start from, of two folds whose trainings end on 23 June and 23 September 2016."""
    return sealed(store, planned(store))


def warm(run, agent=EXPERIMENT.agent, **changes):
    """Return an experiment that starts from a run."""
    return EXPERIMENT.model_copy(
        update={"name": "warm", "agent": agent.model_copy(update={"start": run.run_id}), **changes}
    )


def starting_folds(store, run, **changes):
    """Fold that each fold of a warm experiment starts from."""
    plan, folds = planned(store, warm(run, **changes)), {}
    files = {digest: name for name, digest in run.policies.items()}
    for key in plan.keys:
        fold, seed = map(int, files[read_start(store, plan, key).sha256].removesuffix(".zip").split("-")[1::2])
        assert (folds.setdefault(key[0], fold), seed) == (fold, key[1])
    return folds


def test_start_has_the_tensors_and_scaler_of_its_fold_and_seed(store, run):
    plan = planned(store, warm(run, environment=EXPERIMENT.environment.model_copy(update={"rewards": (LogGrowth(),)})))
    archive = store.policies.read_run(run)[1, 2]
    card, tensors = read_stored(archive)
    start = read_start(store, plan, (1, 2))
    assert (start.scaler, start.tensors) == (card.scaler, tensors)
    assert start.sha256 == hashlib.sha256(archive).hexdigest()
    assert starting_folds(store, run) == {0: 0, 1: 1}
    assert read_start(store, planned(store), (1, 2)) is None


def test_start_has_seen_no_session_after_the_training(store, run):
    shifted = WalkForward(train_months=7, test_months=1)  # trainings end on 26 July, 25 August and 23 September
    assert starting_folds(store, run, splitter=shifted) == {0: 0, 1: 0, 2: 1}
    with pytest.raises(StorageError, match=r"fold 0 ends on 2016-05-25 .* trained until 2016-06-23"):
        require_starts(store, planned(store, warm(run, splitter=WalkForward(train_months=5, test_months=2))))


def test_start_that_saw_sessions_around_a_test_is_refused(store, run):
    plan = planned(store, warm(run, splitter=PurgedKFold(n_folds=4)))
    for fold in (0, 1, 2):
        with pytest.raises(StorageError):
            read_start(store, plan, (fold, 0))
    assert read_start(store, plan, (3, 0)).sha256 == run.policies["fold-0-seed-0.zip"]  # trained until August


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"agent": EXPERIMENT.agent.model_copy(update={"backbone": MlpBackbone(hidden=(4,))})}, "agent.backbone"),
        ({"agent": A2cAgent(backbone=EXPERIMENT.agent.backbone)}, "agent.kind"),
        ({"environment": EXPERIMENT.environment.model_copy(update={"lookback": 6})}, "environment.lookback"),
        ({"seeds": (0, 1, 7)}, "seed 7"),
        ({"market": EXPERIMENT.market.model_copy(update={"symbols": ("AAA", "BBB")})}, "symbols"),
    ],
)
def test_start_of_another_network_market_or_seed_is_refused(store, run, changes, field):
    assert field in str(plan_problem(store, warm(run, **changes)))


def test_unknown_start_is_refused_before_training(store, run):
    unknown = run.model_copy(update={"run_id": "0" * 16})
    with pytest.raises(NotFoundError):
        plan_variants(store, warm(unknown))


def test_members_of_an_ensemble_start_from_runs_of_their_own(store, run):
    members = (EXPERIMENT.agent.model_copy(update={"start": run.run_id}), EXPERIMENT.agent, EXPERIMENT.agent)
    plan = planned(store, EXPERIMENT.model_copy(update={"name": "mixed", "agent": EnsembleAgent(members=members)}))
    require_starts(store, plan)
    assert [read_start(store, plan, (0, seed)) is None for seed in plan.spec.seeds] == [False, True, True]


def test_run_that_hardly_learns_keeps_the_policies_of_its_start(store, run):
    hardly = EXPERIMENT.agent.model_copy(update={"total_timesteps": 1, "learning_rate": 1e-5})
    spec = warm(run, hardly, splitter=WalkForward(train_months=7, test_months=3))
    store.ledger.register(spec)
    drain(train_run(store, read_plan(store, spec.partition_key), Launch("task")))
    trained = store.policies.read_run(store.policies.read_latest(spec.partition_key))
    starts = store.policies.read_run(run)
    for key, content in trained.items():
        (card, tensors), (start, before) = read_archive(content), read_archive(starts[key])
        assert (card.start, card.scaler) == (hashlib.sha256(starts[key]).hexdigest(), start.scaler)
        assert dt.date.fromisoformat(start.train_last) < dt.date.fromisoformat(card.train_last)
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, before[name], atol=1e-4, rtol=0.0)
    assert smoke_run(store, spec).timesteps == 1
