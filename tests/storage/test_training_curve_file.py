import datetime as dt

import pytest

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.training_curve_file import append_point, curve_path, read_points


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def step(timesteps, fold=0, seed=0, stage="train.step", **metrics):
    at = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)
    keys = {"fold": fold, "seed": seed, "timesteps": timesteps, "total_timesteps": 30}
    return Progress(task_id="t", run_id="r", stage=stage, message="", timestamp=at, **keys, metrics=metrics)


def append(home, *steps):
    for each in steps:
        append_point(home, each)


def test_points_of_a_training_are_read_while_it_runs(home):
    append(home, step(10, mean_reward=0.5, loss=1.0), step(20, mean_reward=0.75), step(30, stage="train.checkpoint"))
    points = [(point.timesteps, point.total_timesteps, point.mean_reward) for point in read_points(home, "r")]
    assert points == [(10, 30, 0.5), (20, 30, 0.75)]
    assert read_points(home, "other") == []


def test_points_repeated_by_a_resumed_training_count_once(home):
    append(home, step(10, mean_reward=0.1), step(20, mean_reward=0.2), step(20, mean_reward=0.2))
    assert [point.timesteps for point in read_points(home, "r")] == [10, 20]


def test_torn_line_is_left_out_and_the_next_points_are_read(home):
    append(home, step(10, mean_reward=0.1))
    with curve_path(home, "r").open("a") as file:
        file.write('{"fold":0,"se\n')
    append(home, step(20, mean_reward=0.2))
    assert [point.timesteps for point in read_points(home, "r")] == [10, 20]
