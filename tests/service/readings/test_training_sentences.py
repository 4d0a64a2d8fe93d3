"""Reading of a learning curve, against hand computations and independent fits."""

import numpy as np
import pytest
from scipy.stats import linregress

from nvtrader_pipelines.service.readings.training_sentences import learning_curve, training_sentences


def rows_of(rewards, seed=0, step=1000):
    return [{"seed": seed, "timesteps": step * n, "mean_reward": r} for n, r in enumerate(rewards, start=1)]


def noisy(level, rng, scale=0.01):
    return level + rng.normal(0.0, scale, len(level))


RAMP = np.minimum(np.arange(60) / 20.0, 1.0)  # rises for a third, then rests


def test_slope_of_the_last_third_equals_independent_fits():
    rewards = noisy(0.02 * np.arange(60), np.random.default_rng(3), 0.1)
    slope = learning_curve(rows_of(rewards)).slope
    value, _, _, _, error = linregress(1000.0 * np.arange(41, 61), rewards[-20:])
    assert slope.value / 19_000 == pytest.approx(value)
    assert slope.standard_error / 19_000 == pytest.approx(error)
    assert slope.value / 19 == pytest.approx(np.polyfit(np.arange(20), rewards[-20:], 1)[0])
    assert slope.direction == 1


def test_gain_and_noise_equal_their_formulas():
    rewards = np.array([0.0, 0.1, 0.0, 0.5, 0.4, 0.6, 1.0, 1.1, 0.9])
    curve = learning_curve(rows_of(rewards))
    second = rewards[:-2] - 2 * rewards[1:-1] + rewards[2:]
    noise = np.sqrt((second**2).sum() / 7 / 6)
    assert curve.noise == pytest.approx(noise)
    assert curve.gain == pytest.approx((1.0 - 0.1 / 3, noise * np.sqrt(2 / 3)))


def test_second_differences_recover_the_noise_of_a_trend():
    rewards = noisy(np.arange(3000.0), np.random.default_rng(0), 2.0)
    assert learning_curve(rows_of(rewards)).noise == pytest.approx(2.0, rel=0.05)


def test_plateau_begins_where_the_smoothed_curve_stops_rising():
    curve = learning_curve(rows_of(RAMP))
    assert curve.window == 6
    assert curve.steps(curve.last_record) == pytest.approx(26_000, abs=3000)  # the window is full of ones
    assert curve.plateau == pytest.approx(1 - curve.steps(curve.last_record) / 60_000)
    assert curve.slope.direction == 0


@pytest.mark.parametrize(
    ("rewards", "advice"),
    [
        (np.arange(60.0), "train longer"),
        (RAMP, "Next: stop at"),
        (RAMP - np.maximum(np.arange(60) - 30, 0) / 50, "lower the learning rate"),
        (np.zeros(60), "another learning rate"),
    ],
)
def test_advice_follows_slope_and_plateau(rewards, advice):
    assert advice in training_sentences(rows_of(noisy(rewards, np.random.default_rng(1))), {})[-1]


def test_training_in_progress_is_to_run_on():
    assert "40,000 of 100,000" in training_sentences(rows_of(RAMP), {"total_timesteps": 100_000})[-1]


def test_flat_noise_shows_no_record_slope_or_gain():
    n_false = 0
    for seed in range(200):
        curve = learning_curve(rows_of(np.random.default_rng(seed).normal(size=60)))
        n_false += curve.slope.direction != 0
        assert abs(curve.gain[0]) < 5 * curve.gain[1]
    assert n_false <= 20  # 10 expected at 95 %


def test_seeds_are_averaged_where_all_have_points():
    rows = rows_of(np.ones(20), seed=1) + rows_of(np.full(30, 3.0), seed=2)
    curve = learning_curve(rows)
    assert (len(curve.rewards), curve.rewards[0], curve.seeds, curve.ends) == (20, 2.0, ("1", "2"), (1.0, 3.0))


def test_seed_far_behind_is_left_out():
    curve = learning_curve(rows_of(np.ones(5), seed=1) + rows_of(np.full(30, 3.0), seed=2))
    assert (len(curve.rewards), curve.rewards[0], curve.seeds) == (30, 3.0, ("2",))


def test_rows_without_timesteps_count_in_order():
    curve = learning_curve([{"mean_reward": n} for n in range(12)])
    assert (curve.unit, curve.timesteps[-1]) == ("points", 12.0)


def test_short_curve_claims_no_slope():
    assert len(training_sentences(rows_of([1.0, 2.0]), {})) == 4
