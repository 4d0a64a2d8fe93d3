import tracemalloc

import numpy as np
import pytest
from arch.bootstrap import CircularBlockBootstrap, StationaryBootstrap

from nvtrader_pipelines.evaluation.intervals import SharpeIntervals, growth_interval, lo_interval
from nvtrader_pipelines.evaluation.sharpe.error import gmm_standard_error
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, sharpe_ratio


def normal_returns(n_sessions=700, n_series=3, seed=0):
    return np.random.default_rng(seed).normal(0.0005, 0.01, (n_sessions, n_series))


def test_counts_of_draws_have_the_variance_of_politis_and_romano():
    """Their lemma 1: circular autocovariances, weighted by the chance that a block holds both sessions."""
    returns, n, p = normal_returns(120, 1)[:, 0], 120, 1 / 21
    sums = np.concatenate([counts @ returns for counts in SharpeIntervals().counts(n)])
    centered = returns - returns.mean()
    lags = np.arange(n)
    covariances = np.array([centered @ np.roll(centered, -lag) for lag in lags]) / n
    weights = (1 - lags / n) * (1 - p) ** lags
    expected = n * (2 * weights @ covariances - covariances[0])
    assert len(sums) == 20_000
    assert sums.mean() == pytest.approx(n * returns.mean(), abs=4 * np.sqrt(expected / 20_000))
    assert sums.var() == pytest.approx(expected, rel=0.04)


@pytest.mark.slow
def test_interval_is_near_that_of_a_bootstrap_by_arch():
    returns = normal_returns(250, 1)
    oracle = StationaryBootstrap(21, returns, seed=np.random.default_rng(1))
    values = oracle.apply(lambda sample: np.array([sharpe_ratio(sample[:, 0], 252)]), 4000)
    expected = np.quantile(values, (0.025, 0.975))
    assert SharpeIntervals().draw(returns, 252).interval(0) == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize("n", [2, 20, 21, 400])
@pytest.mark.parametrize("mean_block", [1, 21, 1000])
def test_every_draw_has_as_many_sessions_as_the_sample(n, mean_block):
    counts = np.concatenate(list(SharpeIntervals(mean_block=mean_block, n_draws=300).counts(n)))
    assert counts.shape == (300, n)
    assert counts.min() >= 0
    np.testing.assert_array_equal(counts.sum(axis=1), n)


@pytest.mark.parametrize("n_others", [1, 2, 8, 20])
@pytest.mark.parametrize("n_sessions", [64, 397, 480])
def test_an_account_has_one_interval_alone_and_beside_others(n_sessions, n_others):
    returns, intervals = normal_returns(n_sessions, 1 + n_others), SharpeIntervals(n_draws=600)
    among, alone = intervals.draw(returns, 252), intervals.draw(returns[:, 1:2], 252)
    assert among.interval(1) == alone.interval(0)


@pytest.mark.slow
def test_the_interval_of_independent_returns_is_as_wide_as_theory_says():
    returns = normal_returns(n_sessions=2520, n_series=1)
    low, high = SharpeIntervals(mean_block=1).draw(returns, 252).interval(0)
    standard_error = np.sqrt(252 / 2520)  # Lo (2002), independent returns and a small Sharpe ratio per period
    assert high - low == pytest.approx(2 * 1.96 * standard_error, rel=0.06)


def test_a_difference_is_paired_so_what_two_series_share_cancels():
    returns = normal_returns(n_series=1)
    twins = np.hstack([returns, 2.0 * returns, returns + 0.0001])
    draws = SharpeIntervals(n_draws=500).draw(twins, 252)
    assert draws.difference(0, 1) == pytest.approx((0.0, 0.0), abs=1e-9)
    low, high = draws.difference(2, 0)
    own_low, own_high = draws.interval(0)
    assert 0.0 < low < high
    assert high - low < 0.1 * (own_high - own_low)


def test_cash_account_has_sharpe_ratio_zero_in_every_draw():
    returns = normal_returns()
    returns[:, 1] = 0.0
    draws = SharpeIntervals(n_draws=50).draw(returns, 252)
    assert draws.interval(1) == (0.0, 0.0)


def test_a_draw_that_misses_the_only_move_counts_as_zero():
    returns = np.zeros((300, 1))
    returns[5] = 0.01
    values = SharpeIntervals(n_draws=200).draw(returns, 252).values
    assert np.isfinite(values).all()
    assert (values == 0.0).any()


def test_a_draw_of_equal_returns_beside_one_that_it_misses_counts_as_zero():
    returns = np.full((250, 1), 1e-4)
    returns[-1] = 0.01
    draws = SharpeIntervals().draw(returns, 252)
    assert (draws.values == 0.0).mean() > 0.3
    largest = sharpe_ratio(np.append(returns[:, 0], 0.01), 252)
    assert draws.values.max() < 3.0 * largest
    assert draws.interval(0)[0] == 0.0


def test_missing_returns_are_refused():
    returns = normal_returns()
    returns[3, 1] = np.nan
    with pytest.raises(ValueError):
        SharpeIntervals().draw(returns, 252)


@pytest.mark.slow
def test_nine_series_over_thirteen_years_take_less_than_half_a_gigabyte():
    returns = normal_returns(n_sessions=3300, n_series=9)
    tracemalloc.start()
    try:
        SharpeIntervals().draw(returns, 252)
        assert tracemalloc.get_traced_memory()[1] < 500e6
    finally:
        tracemalloc.stop()


def test_the_interval_by_theory_is_the_ratio_and_its_normal_quantiles():
    returns = normal_returns(n_series=1)[:, 0]
    found = lo_interval(returns, 252, 0.9, n_lags=5)
    assert found.point == sharpe_ratio(returns, 252)
    reach = 1.6448536269514722 * gmm_standard_error(returns, 5) * np.sqrt(252)
    assert (found.low, found.high) == pytest.approx((found.point - reach, found.point + reach), rel=1e-12)


@pytest.mark.slow
def test_the_interval_by_theory_is_near_the_bootstrapped_one():
    returns = normal_returns(n_sessions=2520, n_series=1)
    found = lo_interval(returns[:, 0], 252)
    low, high = SharpeIntervals().draw(returns, 252).interval(0)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1)


def test_an_account_that_stays_in_cash_has_no_interval_by_theory():
    with pytest.raises(UndefinedStatisticError):
        lo_interval(np.zeros(50), 252)


def test_an_interval_needs_a_level_that_is_a_share():
    with pytest.raises(ValueError):
        lo_interval(normal_returns(n_series=1)[:, 0], 252, 95.0)


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
