"""Debts, short positions and ruin in the transition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.dynamics import (
    hold,
    holding_period,
    market_legs,
)
from nvtrader_pipelines.portfolio.costs import proportional_cost
from nvtrader_pipelines.portfolio.financing import Financing
from tests.envs.two_names import DEAR, FILLS, FREE, run, two_names
from tests.panels import LAST_PRICE, MAX_GAP, eventful_panel

OVER_A_WEEKEND = two_names([[0.0, 0.0]] * 3, [[0.0, 0.0]] * 3)  # Friday, Monday, Tuesday


@pytest.mark.parametrize(("fill", "first"), [("next_open", 0.0), ("next_close", 0.0), ("same_close", 3.0)])
def test_what_is_held_after_a_close_pays_for_the_calendar_days_to_the_next(fill, first):
    assert np.diff(OVER_A_WEEKEND.sessions).astype(int).tolist() == [3, 1]
    done = run(OVER_A_WEEKEND, fill, [0.0, 0.0, 1.0], [2.0, -0.5, -0.5], 2, financing=DEAR)
    a_day = (0.5 * 0.20 + 0.5 * 0.10) / 360
    paid = 1.0 - done.session_growth[0]
    np.testing.assert_allclose(paid, np.array([first, 1.0]) * a_day, rtol=5e-3)  # what was paid is owed too


def test_a_debt_repaid_at_the_next_open_pays_for_the_nights_before_it():
    done = run(OVER_A_WEEKEND, "next_open", [1.5, 0.0, -0.5], [1.0, 0.0, 0.0], 2, financing=DEAR)
    np.testing.assert_allclose(done.session_growth[0], [1.0 - 3 * 0.5 * 0.20 / 360, 1.0], rtol=1e-15)
    assert done.executed[0].tolist() == [1.0, 0.0, 0.0]


def test_the_proceeds_of_a_short_sale_pay_for_other_names_and_earn_nothing():
    free_of_debt = run(OVER_A_WEEKEND, "same_close", [0.0, 0.0, 1.0], [1.3, -0.3, 0.0], 1, financing=DEAR)
    np.testing.assert_allclose(free_of_debt.growth, 1.0 - 3 * 0.3 * 0.10 / 360, rtol=1e-15)


@given(seed=st.integers(0, 2**32 - 1), fill=st.sampled_from(FILLS))
def test_a_long_only_account_is_bit_equal_whatever_financing_costs(seed, fill):
    generator = np.random.default_rng(seed)
    panel, n = eventful_panel(120, seed=seed % 7), 16
    start, target = generator.dirichlet(np.full(7, 0.2), (2, n))
    at, trade = generator.integers(0, 110, n), generator.random(n) < 0.8
    dear, free = (
        hold(start, target, trade, holding_period(market_legs(panel, fill, financing), at, 5), proportional_cost(0.001))
        for financing in (DEAR, FREE)
    )
    for name in vars(dear):
        np.testing.assert_array_equal(getattr(dear, name), getattr(free, name))


def test_a_short_name_that_is_delisted_is_bought_back_at_its_last_price_without_cost():
    panel = eventful_panel()
    short = [0.0, 0.0, 0.0, -0.4, 0.0, 0.0, 1.4]
    gone = run(panel, "next_close", short, short, 2, cost_rate=0.01, t=LAST_PRICE + MAX_GAP, trade=False)
    np.testing.assert_allclose(gone.executed[0], [0, 0, 0, 0, 0, 0, 1], atol=1e-15)
    assert gone.turnover.tolist() == gone.cost.tolist() == [0.0]


def test_a_name_without_a_price_takes_its_room_from_what_is_borrowed_too():
    panel = two_names([[0.0, 0.0]] * 2, tradable=[[True, True], [False, True]])
    done = run(panel, "next_close", [1.2, 0.0, -0.2], [0.0, 1.5, -0.5], 1)
    np.testing.assert_allclose(done.executed[0], [1.2, 0.3, -0.5], atol=1e-15)


@pytest.mark.parametrize(
    ("weights", "first"), [([3.0, 0.0, -2.0], -0.40), ([-1.0, 0.0, 2.0], 1.50), ([2.0, 0.0, -1.0], -0.50)]
)
@pytest.mark.parametrize("fill", ["next_close", "same_close"])
def test_an_account_that_loses_all_or_more_is_worth_nothing_and_is_over(weights, first, fill):
    panel = two_names([[0.0, 0.0], [first, 0.0], [0.5, 0.5]])
    done = run(panel, fill, weights, weights, 2, cost_rate=0.001, financing=DEAR)
    assert done.session_growth[0].tolist() == [0.0, 1.0]
    assert done.weights[0].tolist() == [0.0, 0.0, 1.0]
    if fill == "next_close":  # lost before the order could fill
        assert done.turnover.tolist() == done.cost.tolist() == [0.0]


def test_charges_that_take_all_there_is_end_an_account_as_losses_do():
    usury = Financing(margin_rate=200.0, borrow_fee=0.0)
    done = run(OVER_A_WEEKEND, "same_close", [2.0, 0.0, -1.0], [2.0, 0.0, -1.0], 2, financing=usury)
    assert done.session_growth[0].tolist() == [0.0, 1.0]


# --- what is refused ---------------------------------------------------------------------------------------------
