import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.worlds.almgren_chriss import cost_variance, expected_cost, trajectory
from nvtrader_pipelines.worlds.order_execution import (
    AlmgrenChrissResidual,
    ExecutionSimulation,
    FractionAction,
    OrderExecution,
    closed_form_actions,
)

ACTIONS = [FractionAction(), AlmgrenChrissResidual()]


def play(world, n_orders, choose):
    """Rewards (n, k), shares left (n, k) and the last step of n orders until all are sold."""
    simulation = ExecutionSimulation(world, n_orders)
    simulation.reset(range(n_orders), [np.random.default_rng([5, i]) for i in range(n_orders)])
    rewards, left, step = [], [], None
    while step is None or not step.terminated.all():
        step = simulation.step(choose(simulation.observe()))
        rewards.append(step.reward)
        left.append(step.info["shares_left"])
    return np.transpose(rewards), np.transpose(left), step


def constant(value):
    return lambda observation: np.full((len(observation), 1), value, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.kind)
def test_closed_form_costs_what_the_formulas_say(action):
    world, n_orders = OrderExecution(action=action), 5_000
    rewards, left, step = play(world, n_orders, lambda observation: closed_form_actions(world, observation))
    holdings = trajectory(world)
    np.testing.assert_allclose(left, np.tile(holdings[1:], (n_orders, 1)), rtol=1e-6)
    costs = -rewards.sum(axis=1) * world.value
    variance = cost_variance(world, holdings)
    assert costs.mean() == pytest.approx(expected_cost(world, holdings), abs=4.0 * np.sqrt(variance / n_orders))
    assert costs.var() == pytest.approx(variance, rel=4.0 * np.sqrt(2.0 / n_orders))
    np.testing.assert_allclose(step.info["shortfall"], costs / world.value, rtol=1e-12)


def test_shortfall_is_value_at_arrival_less_proceeds():
    world, proceeds = OrderExecution(n_steps=4), np.zeros(3)
    simulation = ExecutionSimulation(world, 3)
    simulation.reset(range(3), [np.random.default_rng(i) for i in range(3)])
    for fraction in (0.1, 0.7, 0.0, 0.2):
        step = simulation.step(np.full((3, 1), fraction))
        proceeds += step.info["shares_sold"] * step.info["fill_price"]
    np.testing.assert_allclose(step.info["shortfall"], 1.0 - proceeds / world.value, rtol=1e-10)


def test_risk_penalty_makes_the_reward_the_utility():
    world = OrderExecution(volatility=1e-9, penalizes_risk=True, risk_aversion=1e12)
    rewards, left, _ = play(world, 1, constant(0.3))
    holdings = np.append(world.shares, left[0])
    utility = expected_cost(world, holdings) + world.risk_aversion * cost_variance(world, holdings)
    assert rewards.sum() * world.value == pytest.approx(-utility, rel=1e-6)


@pytest.mark.parametrize(("fraction", "n_steps", "sold"), [(0.0, 5, 1e6), (1.0, 1, 1e6), (7.0, 1, 1e6)])
def test_all_is_sold_by_the_last_step(fraction, n_steps, sold):
    rewards, left, step = play(OrderExecution(), 2, constant(fraction))
    assert rewards.shape == (2, n_steps)
    assert step.info["shares_sold"].tolist() == [sold, sold]
    assert left[:, -1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_participation_limits_each_sale_and_leaves_nothing(fraction):
    world = OrderExecution(max_participation=0.05)  # 250,000 shares a step of 1,000,000
    _, left, _ = play(world, 1, constant(fraction))
    assert left[0, -1] == 0.0
    assert -np.diff(left[0], prepend=1e6).min() <= 250_000.0 + 1e-6


def test_tilt_sells_more_or_less_than_the_closed_form():
    world = OrderExecution(action=AlmgrenChrissResidual())
    left = {tilt: play(world, 1, constant(tilt))[1][0, 0] for tilt in (-1.0, 0.0, 1.0)}
    assert left[1.0] < left[0.0] < left[-1.0]
    assert left[0.0] == trajectory(world)[1]


def test_done_order_sells_nothing_more():
    simulation = ExecutionSimulation(OrderExecution(), 1)
    simulation.reset([0], [np.random.default_rng(0)])
    simulation.step(np.ones((1, 1)))
    step = simulation.step(np.ones((1, 1)))
    assert (step.reward[0], step.info["shares_sold"][0], step.terminated[0]) == (0.0, 0.0, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_participation": 0.01}, r"shares must be at most 250,000"),
        ({"temporary_impact": 1e-4}, r"price must stay positive"),
        ({"permanent_impact": 6e-5, "n_steps": 500, "temporary_impact": 1e-6}, r"price must stay positive"),
        ({"n_steps": 0}, r"n_steps"),
    ],
)
def test_order_that_cannot_be_sold_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        OrderExecution(**changes)


@pytest.mark.parametrize("actions", [np.zeros((2, 1)), np.zeros(1), np.full((1, 1), np.nan)])
def test_action_of_wrong_shape_or_nan_is_refused(actions):
    with pytest.raises(ValueError):
        ExecutionSimulation(OrderExecution(), 1).step(actions)
