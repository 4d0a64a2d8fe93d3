import numpy as np
import pytest

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.dynamics import hold, holding_period, market_legs
from nvtrader_pipelines.envs.rewards import BenchmarkRelative, ExponentialUtility, LogGrowth
from nvtrader_pipelines.envs.rewards.growth import exponential_utility
from nvtrader_pipelines.envs.rewards.log_growth import log_growth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from nvtrader_pipelines.portfolio.costs import no_cost
from tests.markets import synthetic_panel

RELATIVE = BenchmarkRelative(benchmark=EqualWeightAnchor())


def take_step(target, *, bps=10.0):
    panel = synthetic_panel(40, 2)
    spec = EnvSpec(rewards=(LogGrowth(), RELATIVE), vol_penalty=0.0, turnover_cost_bps=bps, fill="next_close")
    accounts = Accounts(panel, spec, 1, t=20)
    accounts.trade(np.array([[0.7, 0.1, 0.2]]), np.array([True]), 5)
    held = accounts.weights
    return panel, held, accounts.trade(np.array([target]), np.array([True]), 5)


def test_log_growth_is_the_log_of_net_growth():
    _, _, step = take_step([0.2, 0.2, 0.6])
    np.testing.assert_allclose(step.reward_terms["log_growth"], np.log(step.transition.growth), rtol=1e-15)


def test_log_growth_at_ruin_is_finite():
    assert np.isfinite(log_growth(np.array([[0.0], [1e-300]]))).all()


def test_benchmark_relative_is_weighted_growth_over_the_anchor():
    panel, held, step = take_step([0.2, 0.2, 0.6])
    period = holding_period(market_legs(panel, "next_close"), np.array([25]), 5)
    anchor = hold(held, np.array([[0.5, 0.5, 0.0]]), np.array([True]), period, no_cost)
    expected = 100.0 * (np.log(step.transition.growth) - np.log(anchor.growth))
    np.testing.assert_allclose(step.reward_terms["benchmark_relative"], expected, rtol=1e-12)


def test_benchmark_relative_of_the_anchor_is_its_cost():
    _, _, free = take_step([0.5, 0.5, 0.0], bps=0.0)
    _, _, paid = take_step([0.5, 0.5, 0.0], bps=10.0)
    assert free.reward_terms["benchmark_relative"].tolist() == [0.0]
    expected = 100.0 * np.log1p(-paid.transition.cost)
    np.testing.assert_allclose(paid.reward_terms["benchmark_relative"], expected, rtol=1e-9)


@pytest.mark.parametrize("aversion", [0.5, 5.0, 20.0])
def test_exponential_utility_weighs_losses_above_gains(aversion):
    panel = synthetic_panel(40, 2)
    spec = EnvSpec(rewards=(ExponentialUtility(weight=3.0, risk_aversion=aversion),), vol_penalty=0.0)
    step = Accounts(panel, spec, 1, t=20).trade(np.array([[0.7, 0.1, 0.2]]), np.array([True]), 5)
    net = step.transition.growth - 1.0
    expected = 3.0 * (1.0 - np.exp(-aversion * net)) / aversion
    np.testing.assert_allclose(step.reward_terms["exponential_utility"], expected, rtol=1e-9)
    assert step.reward_terms["exponential_utility"] < 3.0 * net


def test_exponential_utility_prefers_a_certain_return():
    sure, won, lost = exponential_utility(np.array([0.02, 0.12, -0.08]), 5.0)
    assert sure > 0.5 * (won + lost)
