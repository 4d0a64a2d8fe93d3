from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from nvtrader_pipelines.evaluation.overfitting import backtest_overfitting
from tests.evaluation.golden import cases, golden

CASES = cases("pbo_cscv")
CLOSE = 1e-12


def noise(n_sessions, n_trials, seed=0):
    return np.random.default_rng(seed).normal(0.0, 0.01, (n_sessions, n_trials))


@pytest.mark.parametrize("name", CASES)
def test_every_combination_of_the_matrices_is_reproduced(name):
    expected = CASES[name]["expected"]
    found = backtest_overfitting(np.array(CASES[name]["M"]), CASES[name]["S"])
    assert len(found.logits) == expected["n_combinations"]
    assert found.chosen.tolist() == expected["n_star"]
    for mine, theirs in (("in_sample", "IS_perf"), ("out_of_sample", "OOS_perf"), ("logits", "logits")):
        assert getattr(found, mine) == pytest.approx(np.array(expected[theirs]), abs=CLOSE)
    ranks = (CASES[name]["N"] + 1) / (1.0 + np.exp(-found.logits))
    assert ranks == pytest.approx(np.array(expected["rank_oos"]), abs=1e-9)
    assert ranks / (CASES[name]["N"] + 1) == pytest.approx(np.array(expected["w_bar"]), abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_probabilities_and_degradation_of_the_matrices_are_reproduced(name):
    expected = CASES[name]["expected"]
    found = backtest_overfitting(np.array(CASES[name]["M"]), CASES[name]["S"])
    assert found.probability == pytest.approx(expected["pbo"], abs=CLOSE)
    assert found.probability == pytest.approx(expected["pbo_le0_with_tol"], abs=CLOSE)
    assert (found.logits < 0.0).mean() == pytest.approx(expected["pbo_strict_lt0"], abs=CLOSE)
    assert (found.logits < 0.0).mean() == pytest.approx(expected["ml4t_diagnostic_compute_pbo"], abs=CLOSE)
    assert found.probability_of_loss == pytest.approx(expected["prob_oos_loss"], abs=CLOSE)
    line, fit = found.degradation(), expected["degradation"]
    assert (line.slope, line.intercept) == pytest.approx((fit["slope"], fit["intercept"]), abs=1e-9)
    assert line.r_squared == pytest.approx(fit["rvalue"] ** 2, abs=1e-9)
    n = len(found.logits)
    ratio = np.sign(line.slope) * np.sqrt(line.r_squared * (n - 2) / (1.0 - line.r_squared))
    assert 2.0 * t.sf(abs(ratio), n - 2) == pytest.approx(fit["pvalue"], rel=1e-6)
    adjusted = 1.0 - (1.0 - line.r_squared) * (n - 1) / (n - 2)
    assert adjusted == pytest.approx(fit["adj_r2_statsmodels"], abs=1e-9)


@pytest.mark.parametrize(
    ("n_blocks", "count"), [(int(s), n) for s, n in golden("pbo_cscv")["combination_counts"].items() if s != "note"]
)
def test_half_of_the_blocks_are_chosen_in_every_way(n_blocks, count):
    assert count == comb(n_blocks, n_blocks // 2)
    assert len(backtest_overfitting(noise(3 * n_blocks, 2), n_blocks).logits) == count


def test_the_oldest_sessions_that_fill_no_block_are_left_out():
    returns = noise(125, 6)
    whole, trimmed = backtest_overfitting(returns, 6), backtest_overfitting(returns[5:], 6)
    assert np.array_equal(whole.logits, trimmed.logits)
    assert not np.array_equal(whole.out_of_sample, backtest_overfitting(returns[:120], 6).out_of_sample)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), n_trials=st.integers(2, 6), n_blocks=st.sampled_from([2, 4, 6]))
def test_block_sums_give_what_the_sessions_themselves_give(seed, n_trials, n_blocks):
    generator = np.random.default_rng(seed)
    returns = generator.normal(generator.normal(0.0, 0.05), 0.01, (5 * n_blocks, n_trials))
    found = backtest_overfitting(returns, n_blocks)
    blocks = np.split(returns, n_blocks)
    for i, inside in enumerate(combinations(range(n_blocks), n_blocks // 2)):
        halves = [
            np.vstack([blocks[k] for k in range(n_blocks) if (k in inside) == chosen]) for chosen in (True, False)
        ]
        best, other = (half.mean(axis=0) / half.std(axis=0, ddof=1) for half in halves)
        assert found.chosen[i] == np.argmax(best)
        assert found.in_sample[i] == pytest.approx(best.max(), abs=1e-9)
        assert found.out_of_sample[i] == pytest.approx(other[np.argmax(best)], abs=1e-9)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_the_trials_changes_nothing(seed):
    generator = np.random.default_rng(seed)
    returns = generator.normal(0.0, 0.01, (60, 5))
    order = generator.permutation(5)
    found, shuffled = backtest_overfitting(returns, 6), backtest_overfitting(returns[:, order], 6)
    assert np.array_equal(order[shuffled.chosen], found.chosen)
    assert shuffled.logits == pytest.approx(found.logits)


def test_copies_of_the_best_trial_share_their_rank():
    returns = noise(60, 4)
    returns[:, 0] += 0.02
    returns[:, 3] = returns[:, 0]
    found = backtest_overfitting(returns, 6)
    assert set(found.chosen.tolist()) == {0}
    assert found.logits == pytest.approx(np.full(20, np.log(3.5 / 1.5)))


def test_a_trial_that_rests_in_a_half_has_a_sharpe_ratio_of_zero_there():
    returns = noise(40, 2) - 0.05
    returns[:, 1] = 0.0
    returns[-1, 1] = 0.001
    found = backtest_overfitting(returns, 4)
    assert set(found.chosen.tolist()) == {1}
    rests = np.array([3 not in inside for inside in combinations(range(4), 2)])
    assert (found.in_sample[rests] == 0.0).all()
    assert (found.out_of_sample[~rests] == 0.0).all()


def test_trial_constant_in_each_half_has_ratio_zero_there():
    returns = noise(160, 2)
    returns[:80, 0], returns[80:, 0] = 1e-4, 3e-4
    found = backtest_overfitting(returns, 4)
    within = [0, 5]  # the first two blocks, and the last two
    assert (np.where(found.chosen == 0, found.in_sample, 0.0)[within] == 0.0).all()
    assert (np.where(found.chosen == 0, found.out_of_sample, 0.0)[within] == 0.0).all()
    assert np.abs(found.in_sample).max() < 10.0
    blocks = np.split(returns, 4)
    mixed = np.vstack([blocks[0], blocks[2]])[:, 0]
    assert found.in_sample[1] == pytest.approx(mixed.mean() / mixed.std(ddof=1))


def test_a_choice_that_earns_nothing_loses_nothing():
    returns = noise(40, 2) - 0.05
    returns[:, 1] = 0.0
    found = backtest_overfitting(returns, 4)
    assert set(found.chosen.tolist()) == {1}
    assert found.probability_of_loss == 0.0


def test_overfitting_probability_of_random_trials_is_one_half():
    """Weights drawn anew each session make trials alike: the choice in sample says nothing of the other half."""
    generator, found = np.random.default_rng(7), []
    for _ in range(60):
        market = generator.normal(0.0003, 0.01, (320, 1)) + generator.normal(0.0, 0.02, (320, 8))
        weights = generator.dirichlet(np.ones(8), (320, 20))
        found.append(backtest_overfitting(np.einsum("tna,ta->tn", weights, market), 8).probability)
    error = np.std(found, ddof=1) / len(found) ** 0.5
    assert error < 0.04  # or the test would let everything through
    assert abs(np.mean(found) - 0.5) < 3.0 * error


def test_a_real_edge_is_not_overfit():
    returns = noise(320, 20)
    returns[:, 4] += 0.004
    assert backtest_overfitting(returns, 8).probability < 0.01


@pytest.mark.parametrize(
    "call",
    [
        lambda: backtest_overfitting(noise(60, 1), 6),
        lambda: backtest_overfitting(np.repeat(noise(60, 1), 3, axis=1), 6),
        lambda: backtest_overfitting(noise(60, 1) * [1.0, 2.0], 6),
        lambda: backtest_overfitting(np.full((60, 2), np.nan), 6),
        lambda: backtest_overfitting(noise(60, 2), 5),
        lambda: backtest_overfitting(noise(60, 2), 22),
        lambda: backtest_overfitting(noise(31, 2)),
    ],
)
def test_what_cannot_be_split_is_refused(call):
    with pytest.raises(ValueError):
        call()


def test_degradation_needs_sharpe_ratios_that_differ():
    returns = noise(8, 2) - 0.05
    returns[:, 0] = np.tile([0.01, -0.01], 4)
    with pytest.raises(ValueError):
        backtest_overfitting(returns, 4).degradation()
