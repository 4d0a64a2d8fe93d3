import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.policies.world_agents.closed_forms import AvellanedaStoikovAgent, CarteaJaimungalAgent
from nvtrader_pipelines.worlds.avellaneda_stoikov import average_spread
from nvtrader_pipelines.worlds.market_making import (
    AvellanedaStoikovResidual,
    MarketMaking,
    MarketMakingSimulation,
    OtherArrivals,
    QuoteOffsets,
)
from tests.worlds.test_market_makers import QUOTES

PATHS = QUOTES["paths_20000"]
N_PATHS = 8_000


def play(world, decide, n_days):
    """Simulation after whole days, their wealth and total rewards, (n,) each."""
    simulation = MarketMakingSimulation(world, n_days)
    simulation.reset(range(n_days), [np.random.default_rng([1, i]) for i in range(n_days)])
    totals = np.zeros(n_days)
    for _ in range(world.n_steps):
        step = simulation.step(decide(simulation.observe()))
        totals += step.reward
    return simulation, step.info["wealth"], totals


def constant(*action):
    return lambda observation: np.tile(np.array(action, np.float32), (len(observation), 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "risk_aversion", [0.1, *(pytest.param(other, marks=pytest.mark.nightly) for other in (0.01, 1.0))]
)
def test_paths_earn_what_golden_paths_do(risk_aversion):
    world = MarketMaking(risk_aversion=risk_aversion, max_inventory=200, action=AvellanedaStoikovResidual())
    symmetric = world.model_copy(update={"action": QuoteOffsets()})
    half = average_spread(world) / 2.0 / symmetric.action.reach
    for name, each, action in (("inventory", world, (0.0, 0.0)), ("symmetric", symmetric, (half, half))):
        simulation, wealth, _ = play(each, constant(*action), N_PATHS)
        profit, deviation, _, inventory_deviation = PATHS[f"{risk_aversion}_{name}_linear"]
        assert wealth.mean() == pytest.approx(profit, rel=0.01)
        assert wealth.std() == pytest.approx(deviation, rel=0.03)
        assert simulation.inventory.std() == pytest.approx(inventory_deviation, rel=0.03)


def test_reward_is_gain_less_penalties():
    world, penalties = MarketMaking(max_inventory=5, n_steps=150), 0.0
    simulation = MarketMakingSimulation(world, 50)
    simulation.reset(range(50), [np.random.default_rng(i) for i in range(50)])
    totals = np.zeros(50)
    for _ in range(world.n_steps):
        step = simulation.step(np.full((50, 2), 0.1))
        totals += step.reward
        penalties = penalties + world.inventory_penalty * world.step_days * step.info["inventory"] ** 2
    penalties = penalties + world.terminal_penalty * step.info["inventory"] ** 2
    np.testing.assert_allclose(totals, step.info["wealth"] - penalties, rtol=1e-9, atol=1e-9)
    assert step.terminated.all()


@pytest.mark.parametrize("action", [QuoteOffsets(), AvellanedaStoikovResidual()], ids=lambda a: a.kind)
def test_reported_distances_are_those_that_are_quoted(action):
    world = MarketMaking(action=action)
    simulation, _, _ = play(world, constant(0.2, -0.1), 1)
    simulation.reset([0], [np.random.default_rng(1)])
    info = simulation.step(np.array([[0.2, -0.1]])).info
    center = action.center(world, np.zeros(1), np.array([world.horizon]))[0]
    assert info["bid_distance"][0] == pytest.approx(center[0] + 0.2 * action.reach)
    assert info["ask_distance"][0] == pytest.approx(center[1] - 0.1 * action.reach)


def test_limit_of_inventory_is_never_exceeded():
    world = MarketMaking(max_inventory=2)
    simulation, _, _ = play(world, constant(-1.0, 1.0), 100)  # every order hits the bid
    assert simulation.inventory.max() == 2.0


@pytest.mark.slow
def test_closed_form_of_the_criterion_earns_most():
    world = MarketMaking()
    simulation = MarketMakingSimulation(world, 1)
    agents = CarteaJaimungalAgent(), AvellanedaStoikovAgent()
    best, other = (play(world, agent.start(simulation, {}), 2_000)[2] for agent in agents)
    gain = best - other
    assert gain.mean() > 4.0 * gain.std() / len(gain) ** 0.5
    assert (play(world, constant(0.0, 0.0), 2_000)[2]).mean() < other.mean()


@pytest.mark.parametrize("action", [QuoteOffsets(), AvellanedaStoikovResidual(reach=4.0)], ids=lambda a: a.kind)
def test_closed_forms_decide_equally_by_every_action(action):
    world = MarketMaking(action=action)
    simulation, _, _ = play(world, AvellanedaStoikovAgent().start(MarketMakingSimulation(world, 1), {}), 20)
    residual, _, _ = play(MarketMaking(action=AvellanedaStoikovResidual()), constant(0.0, 0.0), 20)
    np.testing.assert_array_equal(simulation.inventory, residual.inventory)


def test_other_arrivals_fill_at_their_own_rates():
    world = MarketMaking(arrivals=OtherArrivals(sell_rate=140.0, buy_rate=20.0, fill_decay=1e-6), max_inventory=200)
    simulation, _, _ = play(world, constant(0.5, 0.5), 500)
    assert simulation.inventory.mean() == pytest.approx(120.0, rel=0.03)


@pytest.mark.parametrize(
    "changes",
    [
        {"arrival_rate": 0.0},
        {"n_steps": 100},
        {"arrivals": {"kind": "other", "buy_rate": 300.0}},
        {"arrivals": {"kind": "other", "sell_rate": 0.0}},
        {"fill_decay": -1.0},
    ],
)
def test_rates_that_cannot_be_simulated_are_refused(changes):
    with pytest.raises(ValidationError):
        MarketMaking.model_validate(changes)
