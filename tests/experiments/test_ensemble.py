"""An ensemble of PPO and A2C over two folds, of which each fold takes the better by its validation."""

import pytest

from nvtrader_pipelines.experiments.designs import BestOfNDesign
from nvtrader_pipelines.market.look_ahead import cut_after
from nvtrader_pipelines.policies.agents import A2cAgent, EnsembleAgent, TrainingHooks
from nvtrader_pipelines.policies.archive import read_archive
from tests.experiments.small import EXPERIMENT, planned, trained
from tests.policies.small_learners import AGENT, bits, small

pytestmark = pytest.mark.slow

MEMBERS = AGENT, small(A2cAgent)
SEEDS = 4, 0, 1, 5
SPEC = EXPERIMENT.model_copy(
    update={"agent": EnsembleAgent(members=MEMBERS), "seeds": SEEDS, "design": BestOfNDesign(validation_sessions=63)}
)


@pytest.fixture(scope="module")
def ensemble_plan():
    return planned(SPEC)


@pytest.fixture(scope="module")
def store(ensemble_plan):
    return trained(ensemble_plan)


def test_card_holds_the_member_that_was_trained(store):
    cards = {key: read_archive(content)[0] for key, content in store.archives().items()}
    assert {key: card.agent for key, card in cards.items()} == {
        (fold, seed): MEMBERS[position % 2] for fold in (0, 1) for position, seed in enumerate(SEEDS)
    }
    assert {card.spec_hash for card in cards.values()} == {SPEC.spec_hash}


def test_seed_gives_the_bytes_of_its_member_trained_alone(ensemble_plan, store):
    fold, panel = ensemble_plan.folds[1], ensemble_plan.panel
    window, hooks = ensemble_plan.training_window(fold), TrainingHooks(sample_rate=SPEC.training_sample_rate)
    for seed, member in zip(SEEDS[:2], MEMBERS, strict=True):
        alone = member.train(cut_after(panel, window[1]), SPEC.environment, window, seed, hooks)
        _, tensors = read_archive(store.archives()[1, seed])
        assert {name: tensor.numpy().tobytes() for name, tensor in tensors.items()} == bits(alone)


def test_fold_trades_the_member_of_the_best_validation_and_names_it(store):
    choices = [step for step in store.reported if "validation Sharpe" in step.message]
    for step in choices:
        best = max(step.metrics, key=step.metrics.__getitem__)
        kind = MEMBERS[SEEDS.index(step.seed) % 2].kind
        assert best == f"sharpe/seed-{step.seed}"
        assert f"seed {step.seed} ({kind}) has the best" in step.message
    assert {step.fold: {step.seed: 1.0} for step in choices} == store.sealed
    own = store.record.trajectories.filter(policy="tiny")
    assert set(own.select("fold", "seed").unique().iter_rows()) == {(step.fold, step.seed) for step in choices}
