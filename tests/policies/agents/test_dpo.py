"""Tuning by pairs: a judge with a known utility, labels without information, anchors and resumption."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.policies.agents import DpoAgent, PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError
from nvtrader_pipelines.policies.backbones import MlpBackbone
from nvtrader_pipelines.policies.preference_data import PreferenceData, Tuning
from tests.markets import synthetic_panel
from tests.policies.small_learners import SPEC, bits

pytestmark = pytest.mark.slow

PANEL, WINDOW, N_PAIRS = synthetic_panel(400, 4), (5, 390), 2000
UTILITY = np.array([1.0, -1.0, 0.5, -0.5, 0.0])  # of a weight
RESIDUAL = SPEC.model_copy(update={"action": ResidualAction()})
PPO = PpoAgent(total_timesteps=256, n_envs=8, n_steps=16, batch_size=64, backbone=MlpBackbone(hidden=(16,)))
AGENT = DpoAgent(
    start="0" * 16,
    pairs="0" * 64,
    labels="hard",
    backbone=PPO.backbone,
    learning_rate=3e-3,
    total_timesteps=40_000,
)


@pytest.fixture(scope="module")
def starts():
    return {spec: PPO.train(PANEL, spec, WINDOW, 0) for spec in (SPEC, RESIDUAL)}


def judged_pairs(spec=SPEC, flips=0.0, seed=0):
    """Pairs of random actions, chosen by utility; a share of the labels is flipped, a fifth held out."""
    generator = np.random.default_rng(seed)
    t = generator.integers(WINDOW[0], WINDOW[1], N_PAIRS)
    action = spec.action.start(PANEL)
    first, second = (action(generator.normal(size=(N_PAIRS, 5)), t) for _ in range(2))
    is_first = (first @ UTILITY > second @ UTILITY) ^ (generator.random(N_PAIRS) < flips)
    return PreferenceData(
        decided_at=t,
        held=generator.dirichlet(np.ones(5), N_PAIRS),
        drawdown=np.zeros(N_PAIRS),
        chosen=np.where(is_first[:, None], first, second),
        rejected=np.where(is_first[:, None], second, first),
        flip=np.zeros(N_PAIRS),
        weight=np.ones(N_PAIRS),
        is_holdout=np.arange(N_PAIRS) % 5 == 0,
    )


def tune(start, pairs, agent=AGENT, spec=SPEC, **hooks):
    tuning = Tuning(start.scaler, save(start.tensors), "0" * 64, pairs)
    return agent.train(PANEL, spec, WINDOW, 0, TrainingHooks(start=tuning, **hooks))


def mean_utility(fit, spec):
    """Mean utility of the weights that a policy decides on, over states of an account in cash."""
    t = np.arange(10, 390)
    builder = spec.observation.start(PANEL, fit.scaler, spec.lookback)
    cash = np.tile([0.0, 0.0, 0.0, 0.0, 1.0], (len(t), 1))
    seen = builder.observe(t, AccountView(cash, np.zeros(len(t))))
    from gymnasium import spaces

    size = spec.action.size(4)
    network = PPO.network(
        builder.layout,
        spaces.Box(-np.inf, np.inf, (builder.length,), np.float32),
        spaces.Box(-size.bound, size.bound, (size.length,), np.float32),
    )
    network.load_state_dict(fit.tensors)
    with torch.no_grad():
        actions = np.concatenate([PPO.act(network, row[None], None).action[None] for row in torch.from_numpy(seen)])
    return float((spec.action.start(PANEL)(actions, t) @ UTILITY).mean())


def last(fit, split="stop"):
    return fit.epochs.filter(split=split).row(-1, named=True)


@pytest.mark.parametrize("spec", [SPEC, RESIDUAL], ids=["simplex", "residual"])
def test_judge_of_known_utility_is_followed(starts, spec):
    start = starts[spec]
    tuned = tune(start, judged_pairs(spec), spec=spec)
    first, end = tuned.epochs.filter(split="stop").row(0, named=True), last(tuned)
    assert (first["loss"], first["margin"], first["kl"]) == (pytest.approx(np.log(2.0)), 0.0, 0.0)
    assert end["loss"] < 0.6
    assert end["accuracy"] > 0.8
    assert end["kl"] > 0.0
    assert mean_utility(tuned, spec) > mean_utility(start, spec) + 0.02


def test_labels_without_information_leave_the_start(starts):
    tuned = tune(starts[SPEC], judged_pairs(flips=0.5))
    assert tuned.epochs["epoch"].max() <= AGENT.patience + 3
    assert abs(last(tuned)["accuracy"] - 0.5) < 0.1


def test_robust_loss_and_soft_labels_learn_from_flipped_labels(starts):
    clean, noisy = judged_pairs(), judged_pairs(flips=0.2)
    flipped = (clean.chosen != noisy.chosen).any(axis=1)
    soft = replace(noisy, flip=np.where(flipped, 0.9, 0.1))
    agents = {
        "robust": (AGENT.model_copy(update={"loss": "robust", "label_smoothing": 0.2}), noisy),
        "soft": (AGENT.model_copy(update={"labels": "soft"}), soft),
    }
    for agent, pairs in agents.values():
        tuned = tune(starts[SPEC], pairs, agent)
        right = last(tuned)["accuracy"]  # by the noisy labels
        assert right > 0.62


@pytest.fixture(scope="module")
def tuned(starts):
    """A policy tuned to the judge."""
    return tune(starts[SPEC], judged_pairs())


def test_critic_and_deviation_stay_as_they_are(starts, tuned):
    for name, tensor in starts[SPEC].tensors.items():
        is_actor = name.startswith(("action_net", "mlp_extractor.policy_net"))
        assert torch.equal(tensor, tuned.tensors[name]) == (not is_actor), name


def test_equal_seeds_give_equal_bytes_and_a_resumed_training_the_same(starts, tuned):
    pairs, saved = judged_pairs(), []
    whole = tune(starts[SPEC], pairs, checkpoint=saved.append)
    assert bits(tuned) == bits(whole)
    assert len(saved) > 2
    resumed = tune(starts[SPEC], pairs, resume_from=saved[1])
    assert bits(resumed) == bits(whole)
    assert resumed.epochs.equals(whole.epochs)
    assert resumed.curve == whole.curve
    with pytest.raises(CheckpointError):
        tune(starts[SPEC], pairs, AGENT.model_copy(update={"beta": 0.3}), resume_from=saved[1])


def test_pairs_that_the_action_cannot_reach_are_left_out(starts):
    pairs = judged_pairs(RESIDUAL)
    far = np.tile([1.0, 0.0, 0.0, 0.0, 0.0], (100, 1))
    chosen = np.concatenate([far, pairs.chosen[100:]])
    tuned = tune(starts[RESIDUAL], replace(pairs, chosen=chosen), spec=RESIDUAL)
    counts = dict(tuned.epochs.filter(epoch=0).select("split", "n_pairs").iter_rows())
    assert counts == {"train": 1520, "stop": 380}


@pytest.mark.parametrize(
    "change",
    [
        lambda pairs: replace(pairs, decided_at=np.full(N_PAIRS, 395)),
        lambda pairs: replace(pairs, is_holdout=np.ones(N_PAIRS, np.bool_)),
    ],
    ids=["outside", "held out"],
)
def test_pairs_that_cannot_be_trained_on_are_refused(starts, change):
    with pytest.raises(ValueError):
        tune(starts[SPEC], change(judged_pairs()))


def test_start_of_another_network_and_no_start_are_refused(starts):
    other = AGENT.model_copy(update={"backbone": MlpBackbone(hidden=(8,))})
    with pytest.raises(ValueError):
        tune(starts[SPEC], judged_pairs(), other)
    with pytest.raises(ValueError):
        AGENT.train(PANEL, SPEC, WINDOW, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": "soft", "label_smoothing": 0.1},
        {"labels": "soft", "loss": "robust"},
        {"labels": "hard", "loss": "ipo", "label_smoothing": 0.1},
        {"start": "abc"},
    ],
)
def test_settings_that_contradict_are_refused(fields):
    with pytest.raises(ValueError):
        DpoAgent.model_validate({"start": "0" * 16, "pairs": "0" * 64, **fields})
