from itertools import product

import numpy as np
import pytest
from arch.bootstrap import IndependentSamplesBootstrap
from scipy.stats import trim_mean

from nvtrader_pipelines.evaluation.aggregates import interquartile_mean

SCORES = np.random.default_rng(3).normal(0.5, 0.4, (13, 3)) + np.linspace(-1.0, 1.0, 13)[:, None]


def seeded():
    return np.random.default_rng(0)


def middle_half(scores):
    """Agarwal et al. (2021): drop the bottom and the top quarter of all runs, and average what is left."""
    ordered = sorted(np.ravel(scores))
    dropped = len(ordered) // 4
    kept = ordered[dropped : len(ordered) - dropped]
    return sum(kept) / len(kept)


@pytest.mark.parametrize("shape", [(1, 2), (1, 4), (2, 2), (3, 5), (13, 3), (26, 100)])
def test_the_point_is_the_mean_of_the_middle_half_of_all_scores(shape):
    scores = np.random.default_rng(1).normal(size=shape)
    assert interquartile_mean(scores, seeded(), n_draws=10).point == pytest.approx(middle_half(scores), rel=1e-12)


def test_the_bounds_are_those_of_every_possible_draw():
    scores = np.array([[0.1, 0.9, 0.4], [1.2, -0.3, 0.5], [0.7, 0.2, 2.0]])
    draws = [list(product(fold, repeat=3)) for fold in scores]  # 27 equally likely draws of each fold
    every = [middle_half(drawn) for drawn in product(*draws)]
    low, high = np.quantile(every, (0.025, 0.975))
    found = interquartile_mean(scores, seeded(), n_draws=20_000)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


@pytest.mark.slow
def test_interquartile_bounds_equal_another_library():
    oracle = IndependentSamplesBootstrap(*SCORES, seed=np.random.default_rng(5))
    low, high = oracle.conf_int(
        lambda *folds: trim_mean(np.concatenate(folds), 0.25), reps=2000, method="percentile", size=0.95
    ).ravel()
    found = interquartile_mean(SCORES, seeded(), n_draws=5000)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)
    assert found.low < found.point < found.high


def test_two_of_a_seed_are_equal_and_of_another_seed_are_not():
    first, again, other = (interquartile_mean(SCORES, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "scores",
    [np.zeros((3, 1)), np.zeros((0, 3)), np.zeros(3), np.array([[0.1, np.nan]])],
    ids=["one seed", "no fold", "one axis", "missing"],
)
def test_scores_that_cannot_be_resampled_are_refused(scores):
    with pytest.raises(ValueError):
        interquartile_mean(scores, seeded())
