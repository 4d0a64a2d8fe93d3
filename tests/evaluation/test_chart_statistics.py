"""Statistics of charts, against hand computations and independent fits and tests."""

import numpy as np
import pytest
from scipy.stats import linregress, mannwhitneyu

from nvtrader_pipelines.evaluation.chart_statistics import RewardTrend, half_difference, luck_of_best, rank_test


def trend_of(rewards):
    by_seed = np.atleast_2d(rewards)
    return RewardTrend.of(1000.0 * np.arange(1, by_seed.shape[1] + 1), by_seed)


def test_half_difference_has_the_error_of_two_means():
    halves = half_difference([1.0, 3.0, 2.0, 5.0, 7.0, 6.0])
    assert (halves.value, halves.error, halves.sign) == pytest.approx((4.0, np.sqrt(2 / 3), 1))
    assert half_difference([1.0] * 5) is None


def test_luck_of_best_is_that_of_normal_draws():
    values = np.random.default_rng(0).normal(2.0, 3.0, 40)
    draws = np.random.default_rng(1).normal(values.mean(), values.std(ddof=1), (20_000, 40))
    assert luck_of_best(values) == pytest.approx(draws.max(axis=1).mean(), rel=0.02)


def test_rank_test_equals_that_of_scipy():
    rng = np.random.default_rng(0)
    worst, best = rng.normal(0.0, 1.0, 8), rng.normal(1.0, 1.0, 9)
    from_scipy = mannwhitneyu(best, worst, use_continuity=False, method="asymptotic")
    z, p_value = rank_test(best, worst)
    assert (z * np.sqrt(8 * 9 * 18 / 12) + 36, p_value) == pytest.approx(tuple(from_scipy))


def test_slope_of_the_last_third_equals_an_independent_fit():
    rewards = 0.02 * np.arange(60) + np.random.default_rng(3).normal(0.0, 0.1, 60)
    trend = trend_of(rewards)
    value, _, _, _, error = linregress(1000.0 * np.arange(41, 61), rewards[-20:])
    assert (trend.slope.value, trend.slope.error) == pytest.approx((19_000 * value, 19_000 * error))
    assert (trend.slope.sign, trend.slope_span) == (1, 19_000)


def test_gain_and_noise_equal_their_formulas():
    rewards = np.array([0.0, 0.1, 0.0, 0.5, 0.4, 0.6, 1.0, 1.1, 0.9])
    trend = trend_of(rewards)
    noise = np.sqrt(((rewards[:-2] - 2 * rewards[1:-1] + rewards[2:]) ** 2).sum() / 7 / 6)
    assert (trend.noise, trend.gain.value, trend.gain.error) == pytest.approx(
        (noise, 1.0 - 0.1 / 3, noise * np.sqrt(2 / 3))
    )


def test_second_differences_recover_the_noise_of_a_trend():
    rewards = np.arange(3000.0) + np.random.default_rng(0).normal(0.0, 2.0, 3000)
    assert trend_of(rewards).noise == pytest.approx(2.0, rel=0.05)


def test_plateau_begins_where_the_smoothed_curve_stops_rising():
    trend = trend_of(np.minimum(np.arange(60) / 20.0, 1.0))
    assert (trend.window, trend.slope.sign) == (6, 0)
    assert trend.timesteps[trend.last_record] == pytest.approx(26_000, abs=3000)  # the window is full of ones
    assert trend.plateau == pytest.approx(1 - trend.timesteps[trend.last_record] / 60_000)


def test_flat_noise_shows_no_slope_or_gain():
    trends = [trend_of(np.random.default_rng(seed).normal(size=60)) for seed in range(200)]
    assert sum(trend.slope.sign != 0 for trend in trends) <= 20  # 10 expected at 95 %
    assert all(abs(trend.gain.value) < 5 * trend.gain.error for trend in trends)


def test_trend_is_of_the_mean_over_seeds():
    trend = trend_of([np.ones(20), np.full(20, 3.0)])
    assert (set(trend.smoothed), trend.ends.tolist()) == ({2.0}, [1.0, 3.0])
