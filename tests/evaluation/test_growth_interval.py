import numpy as np
import pytest
from arch.bootstrap import CircularBlockBootstrap

from nvtrader_pipelines.evaluation.growth_interval import growth_interval


def test_growth_interval_equals_that_of_a_bootstrap_by_arch():
    growth = np.convolve(np.random.default_rng(0).normal(0.0005, 0.01, 1260), np.ones(5) / 5, "same")
    oracle = CircularBlockBootstrap(21, growth, seed=np.random.default_rng(1))
    draws = oracle.apply(lambda sample: sample[:63].sum(), 4000)
    low, high = growth_interval(np.expm1(growth), 63)
    assert (low, high) == pytest.approx(np.quantile(draws, (0.025, 0.975)), abs=0.1 * (high - low) / 2)
    assert growth_interval(np.expm1(growth), 63) == (low, high)


def test_growth_interval_covers_as_many_accounts_as_it_says():
    generator = np.random.default_rng(0)
    low, high = growth_interval(generator.normal(0.0005, 0.01, 5000), 50)
    accounts = np.log1p(generator.normal(0.0005, 0.01, (4000, 50))).sum(axis=1)
    assert np.mean(accounts < low) == pytest.approx(0.025, abs=0.012)
    assert np.mean(accounts > high) == pytest.approx(0.025, abs=0.012)
