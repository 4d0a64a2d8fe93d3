from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.rewards import DpDistillation, Hindsight
from nvtrader_pipelines.envs.rewards.foresight import forward_returns, optimal_positions
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.look_ahead import hide_outside, with_other_future
from nvtrader_pipelines.market.panel import PANEL_ARRAYS
from tests.envs.two_names import two_names
from tests.panels import eventful_panel

TERMS = (Hindsight(), DpDistillation())
STRETCHES = ((2, 66), (93, 140))
RETURNS = np.array([[0.5, 0.5], [0.1, 0.0], [-0.2, 0.05], [0.3, 0.05], [0.0, -0.5]])  # the first are before any close


def reward(term, targets, returns=RETURNS, *, t=0, is_trading=True, training=((0, 4),), fill="same_close"):
    """Contribution of one decision of an account in cash, at the close of `t`."""
    spec = EnvSpec(rewards=(term,), vol_penalty=0.0, fill=fill)
    accounts = Accounts(two_names(returns), spec, 1, t=t, training=training)
    return accounts.trade(np.array([targets]), np.array([is_trading]), 1).reward_terms[term.kind][0]


def with_other_values(panel, sessions):
    """Panel with noise in every array in some sessions."""
    noise, arrays = with_other_future(panel, 0), {name: getattr(panel, name).copy() for name in PANEL_ARRAYS}
    for name, array in arrays.items():
        array[sessions] = getattr(noise, name)[sessions]
    return replace(panel, **arrays)


def contributions(panel, term):
    """Contributions of 24 portfolios in both stretches."""
    spec = EnvSpec(rewards=(term,), vol_penalty=0.0, rebal_freq=3)
    simulation = PortfolioSimulation(panel, spec, 24, first=2, last=140, stretches=STRETCHES)
    generator, starts = np.random.default_rng(0), [*range(2, 50, 4), *range(93, 129, 3)]
    simulation.accounts.open(list(range(24)), starts)
    return np.array([simulation.step(generator.normal(size=(24, 7))).account.reward_terms[term.kind] for _ in range(4)])


def test_forward_returns_compound_over_the_horizon():
    expected = [1.1 * 0.8 - 1.0, 0.8 * 1.3 - 1.0, 1.3 - 1.0, 0.0, 0.0]
    np.testing.assert_allclose(forward_returns(RETURNS, 2)[:, 0], expected, rtol=1e-12, atol=1e-15)


def test_hindsight_weighs_the_next_and_the_compound_return():
    term = Hindsight(weight=2.0, horizon=3, long_term_weight=0.5)
    far = [1.1 * 0.8 * 1.3 - 1.0, 1.05 * 1.05 - 1.0]
    expected = 2.0 * (0.6 * (0.1 + 0.5 * far[0]) + 0.3 * 0.5 * far[1])
    assert reward(term, [0.6, 0.3, 0.1]) == pytest.approx(expected, rel=1e-12)
    assert reward(term, [0.6, 0.3, 0.1], is_trading=False) == 0.0  # the account stays in cash


def test_hindsight_begins_where_an_order_fills():
    far = [0.8 * 1.3 - 1.0, 1.05 * 1.05 - 1.0]
    expected = 0.6 * (-0.2 + 0.2 * far[0]) + 0.3 * (0.05 + 0.2 * far[1])
    assert reward(Hindsight(horizon=2), [0.6, 0.3, 0.1], fill="next_close") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("cost", [0.0, 0.01, 0.06])
def test_optimal_positions_earn_the_most_of_all_paths(cost):
    returns = np.random.default_rng(3).normal(0.0, 0.05, (6, 4))  # the last five are earned
    paths = np.array(list(product((0.0, 0.5, 1.0), repeat=5)))
    costs = cost * np.abs(np.diff(paths, axis=1, prepend=0.0)).sum(axis=1)
    positions = optimal_positions(returns, cost, 3)
    for name in range(4):
        best = paths[np.argmax(paths @ returns[1:, name] - costs)]
        np.testing.assert_array_equal(positions[:5, name], best)


def test_distillation_is_half_the_distance_from_the_scaled_optimum():
    term = DpDistillation(weight=2.0, cost_bps=10.0, levels=5)
    optima = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    for t, optimum in enumerate(optima):
        distance = np.abs(np.array([0.6, 0.3, 0.1]) - optimum).sum()
        assert reward(term, [0.6, 0.3, 0.1], t=t) == pytest.approx(-distance, rel=1e-12)


def test_program_wants_no_ineligible_names():
    panel = replace(two_names(RETURNS), eligible=np.tile([False, True], (5, 1)))
    accounts = Accounts(
        panel, EnvSpec(rewards=(DpDistillation(),), vol_penalty=0.0, fill="same_close"), 1, training=((0, 4),)
    )
    step = accounts.trade(np.array([[0.0, 0.0, 1.0]]), np.array([True]), 1)
    assert step.reward_terms["dp_distillation"].tolist() == [0.0]


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.kind)
def test_foresight_counts_nothing_without_a_training_window(term):
    assert reward(term, [0.6, 0.3, 0.1], training=()) == 0.0
    assert reward(term, [0.6, 0.3, 0.1]) != 0.0


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.kind)
def test_contributions_do_not_depend_on_sessions_outside_the_stretches(term):
    panel = eventful_panel()
    known = contributions(panel, term)
    assert (known != 0.0).mean() > 0.9
    outside = np.r_[0:2, 67:93, 141:160]
    hidden = hide_outside(panel, STRETCHES)
    for name in PANEL_ARRAYS:
        assert not getattr(hidden, name)[outside].any()
        np.testing.assert_array_equal(getattr(hidden, name)[2:67], getattr(panel, name)[2:67])
    for sessions in (np.r_[67:93], np.r_[141:160], outside):
        np.testing.assert_array_equal(contributions(with_other_values(panel, sessions), term), known)
