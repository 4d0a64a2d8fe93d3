"""A run whose folds average three seeds by the softmax of their validation Sharpe ratios."""

import numpy as np
import pytest
from scipy.special import softmax

from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.experiments.deployment import deploy
from nvtrader_pipelines.experiments.designs import MetaEnsembleDesign
from nvtrader_pipelines.experiments.policy_accounts import proposing_policy
from nvtrader_pipelines.experiments.recorded_folds import Parent, fold_dates
from nvtrader_pipelines.experiments.replay import replay_plan
from nvtrader_pipelines.policies.archive import read_archive
from nvtrader_pipelines.policies.learned import open_policy
from nvtrader_pipelines.policies.policy import Decision
from tests.experiments.memory import MemoryStore, walk_and_judge
from tests.experiments.small import EXPERIMENT, planned, trained

pytestmark = pytest.mark.slow

SPEC = EXPERIMENT.model_copy(update={"design": MetaEnsembleDesign()})


class WeightedMean:
    """The mean of the seeds of a fold, computed by hand."""

    def __init__(self, plan, store, fold):
        self._weights = store.sealed[fold.index]
        self._members = {
            seed: open_policy(*read_archive(store.archives()[fold.index, seed]), plan.panel) for seed in self._weights
        }

    def decide(self, panel, t, account):
        targets = {seed: member.decide(panel, t, account).target for seed, member in self._members.items()}
        return Decision(target=sum(weight * targets[seed] for seed, weight in self._weights.items()))


@pytest.fixture(scope="module")
def meta():
    """The plan and the store of the whole run."""
    plan = planned(SPEC)
    return plan, trained(plan)


def own_curve(plan, policies):
    account = PolicyAccount("tiny", "ensemble", (None, None), tuple(policies))
    return backtest(plan.panel, plan.spec.environment, plan.folds, [account]).equity_curves


def test_weights_are_the_softmax_of_the_reported_sharpe_ratios(meta):
    plan, store = meta
    steps = [step for step in store.reported if "validation Sharpe" in step.message]
    assert [(step.fold, step.seed) for step in steps] == [(fold.index, None) for fold in plan.folds]
    for step in steps:
        weights = store.sealed[step.fold]
        sharpe = [step.metrics[f"sharpe/seed-{seed}"] for seed in SPEC.seeds]
        np.testing.assert_allclose([weights[seed] for seed in SPEC.seeds], softmax(sharpe), rtol=1e-14)
        assert max(weights.values()) - min(weights.values()) > 0.01
        assert {seed: step.metrics[f"weight/seed-{seed}"] for seed in SPEC.seeds} == weights


def test_account_holds_the_weighted_mean_of_the_seeds(meta):
    plan, store = meta
    own = store.record.equity_curves.filter(policy="tiny")
    by_hand = own_curve(plan, [WeightedMean(plan, store, fold) for fold in plan.folds])
    np.testing.assert_allclose(own["equity"], by_hand["equity"], rtol=1e-12)
    proposing = own_curve(plan, [proposing_policy(plan, store.archives(), store.sealed, fold) for fold in plan.folds])
    np.testing.assert_allclose(own["equity"], proposing["equity"], rtol=1e-12)
    assert store.record.trajectories.filter(policy="tiny")["seed"].is_null().all()


def test_replay_and_deployment_weigh_the_seeds_as_the_walk_bit_for_bit(meta):
    plan, store = meta
    parent = Parent(plan.run_id, fold_dates(plan))
    replay = MemoryStore(parent=store)
    list(walk_and_judge(replay_plan(plan.spec, plan.panel, parent), replay))
    assert replay.record.action_logs.equals(store.record.action_logs)
    assert replay.record.equity_curves.equals(store.record.equity_curves)
    deployment = deploy(plan.spec, plan.panel, parent, store.archives(), store.sealed, {}, "tiny")
    assert deployment.seeds == SPEC.seeds
    deployed = own_curve(plan, [deployment.fold_policies] * 2)
    assert deployed.equals(store.record.equity_curves.filter(policy="tiny"))
