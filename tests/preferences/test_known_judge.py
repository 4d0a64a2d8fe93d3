"""Policies tuned to the pairs of a judge whose utility is known, with labels that are right, flipped, or coin flips."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import save

from nvtrader_pipelines.policies.agents.dpo_training import pair_gains
from nvtrader_pipelines.policies.preference_data import Tuning
from nvtrader_pipelines.preferences.holdout_auc import holdout_auc, orient
from tests.policies.agents.test_dpo import AGENT, N_PAIRS, PANEL, PPO, SPEC, WINDOW, judged_pairs, mean_utility, tune

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def start():
    return PPO.train(PANEL, SPEC, WINDOW, 0)


def auc_of(start, tuned, labels=None):
    """AUC of pairs that were neither trained on nor stopped by, each a decision of its own."""
    pairs = judged_pairs(seed=7) if labels is None else labels
    tuning = Tuning(start.scaler, save(start.tensors), "0" * 64, replace(pairs, is_holdout=np.ones(N_PAIRS, np.bool_)))
    gains = pair_gains(AGENT, SPEC, PANEL, tuning, tuned.tensors)
    ids = [f"{number:016x}" for number in np.random.default_rng(0).integers(0, 2**62, N_PAIRS)]
    return holdout_auc(*orient(gains, ids), np.arange(N_PAIRS).astype("datetime64[D]"))


def test_judge_is_learned_and_the_policy_does_what_it_prefers(start):
    tuned = tune(start, judged_pairs())
    auc = auc_of(start, tuned)
    assert auc.auc > 0.8
    assert auc.is_above_chance
    assert mean_utility(tuned, SPEC) > mean_utility(start, SPEC) + 0.02


def test_coin_flips_are_not_told_from_chance(start):
    tuned = tune(start, judged_pairs(flips=0.5))
    auc = auc_of(start, tuned, judged_pairs(flips=0.5, seed=8))
    assert auc.low <= 0.5 <= auc.high
    assert not auc.is_above_chance


def test_a_fifth_of_flipped_labels_is_learned_from(start):
    auc = auc_of(start, tune(start, judged_pairs(flips=0.2)))
    assert auc.auc > 0.72
