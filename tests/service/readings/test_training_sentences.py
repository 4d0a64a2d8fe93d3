"""Reading of a learning curve."""

import numpy as np
import pytest

from nvtrader_pipelines.service.readings import read_chart

RAMP = np.minimum(np.arange(60) / 20.0, 1.0)  # rises for a third, then rests


def rows_of(rewards, seed=0):
    return [{"seed": seed, "timesteps": 1000 * n, "mean_reward": float(r)} for n, r in enumerate(rewards, start=1)]


def read(rows, **facts):
    return read_chart("training_curve", {**facts, "rows": rows})


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
    assert advice in read(rows_of(rewards + np.random.default_rng(1).normal(0.0, 0.01, 60)))[-1]


def test_training_in_progress_is_to_run_on():
    assert "40,000 of 100,000" in read(rows_of(RAMP), total_timesteps=100_000)[-1]


def test_seeds_are_compared_where_all_have_points():
    spread = read(rows_of(np.ones(20), seed=1) + rows_of(np.full(30, 3.0), seed=2))[4]
    assert "seed 2 averages 3.0 and seed 1 1.0" in spread


def test_seed_far_behind_is_left_out():
    sentences = read(rows_of(np.ones(5), seed=1) + rows_of(np.full(30, 3.0), seed=2))
    assert (len(sentences), "best is 3.000" in sentences[3]) == (5, True)


def test_short_curve_claims_no_slope():
    assert len(read(rows_of([1.0, 2.0]))) == 4
