import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.world_results import play, total_rewards, trajectory_rows
from nvtrader_pipelines.figures import episode_rewards_figure, quotes_figure
from nvtrader_pipelines.worlds.market_making import MarketMaking, MarketMakingSimulation
from nvtrader_pipelines.worlds.order_execution import ExecutionSimulation, OrderExecution
from tests.figures.pictures import pixels

NAME = "experiment-with-a-name-of-42-letters-in-it"
N_DAYS = 40


def constant(*action):
    return lambda observation: np.tile(np.array(action, np.float32), (len(observation), 1))


def played_test(simulation, *policies):
    """Steps of the reference and of policies by seed, and rows of their trajectories."""
    accounts = [{"policy": simulation.world.reference, "kind": "baseline", "seed": None}]
    accounts += [{"policy": f"{NAME}/seed-{seed}", "kind": "policy", "seed": seed} for seed in range(len(policies))]
    steps = [play(simulation, decide) for decide in (simulation.world.reference_actions, *policies)]
    rows = [trajectory_rows(one, **account) for one, account in zip(steps, accounts, strict=True)]
    return steps, pl.concat(rows)


def making(*policies):
    return played_test(MarketMakingSimulation(MarketMaking(n_steps=150), N_DAYS), *policies)


def stairs(axes):
    return [patch.get_data() for patch in axes.patches]


def clear_of_edges(picture, tmp_path):
    image = pixels(picture.png(), tmp_path)
    return all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [pytest.param(1, marks=pytest.mark.nightly), 3])
def test_distributions_are_those_of_the_total_rewards(n_seeds, tmp_path):
    steps, rows = making(*(constant(0.1 * (seed + 2), 0.2) for seed in range(n_seeds)))
    picture = episode_rewards_figure(rows, "title", "money")
    (axes,) = picture.figure.axes
    filled, reference, *seeds, mean = stairs(axes)
    shares = [np.histogram(total_rewards(one), reference.edges)[0] / N_DAYS for one in steps]
    assert reference.values.tolist() == filled.values.tolist() == shares[0].tolist()
    assert [seed.values.tolist() for seed in seeds] == ([share.tolist() for share in shares[1:]] if n_seeds > 1 else [])
    np.testing.assert_allclose(mean.values, np.mean(shares[1:], axis=0))
    assert (reference.values.sum(), mean.values.sum()) == pytest.approx((1.0, 1.0))
    means = [total_rewards(steps[0]).mean(), np.mean([total_rewards(one).mean() for one in steps[1:]])]
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx(means)
    assert clear_of_edges(picture, tmp_path)


def test_one_episode_has_no_distribution():
    _, rows = played_test(ExecutionSimulation(OrderExecution(), 1), constant(0.5))
    assert episode_rewards_figure(rows, "title", "money") is None


def test_equal_rewards_are_drawn():
    _, rows = played_test(ExecutionSimulation(OrderExecution(volatility=0.0), 3), constant(0.5))
    axes = episode_rewards_figure(rows, "title", "fraction").figure.axes[0]
    assert [max(one.values) for one in stairs(axes)] == [1.0] * 3


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [pytest.param(1, marks=pytest.mark.nightly), 3])
def test_quotes_and_inventory_are_those_of_the_first_seed_and_the_reference(n_seeds, tmp_path):
    steps, rows = making(*(constant(0.1 * (seed + 2), 0.2) for seed in range(n_seeds)))
    picture = quotes_figure(rows.filter(episode=0), "title")
    quotes, inventory = picture.figure.axes
    expected = [
        sign * one.filter(episode=0)[f"info:{side}_distance"].to_numpy()
        for one in steps[:2]
        for sign, side in ((1.0, "ask"), (-1.0, "bid"))
    ]
    np.testing.assert_allclose([one.values for one in stairs(quotes)], expected)
    held = [one.filter(episode=0)["info:inventory"].to_list() for one in steps[:2]]
    assert [one.values.tolist() for one in stairs(inventory)] == held
    assert len(set(map(tuple, held))) == 2
    assert clear_of_edges(picture, tmp_path)


def test_world_without_quotes_has_no_picture_of_them():
    _, rows = played_test(ExecutionSimulation(OrderExecution(), 2), constant(0.5))
    assert quotes_figure(rows.filter(episode=0), "title") is None
