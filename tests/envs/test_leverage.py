"""Debts, short positions and ruin in the transition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.dynamics import hold, holding_period, market_legs
from nvtrader_pipelines.portfolio.costs import proportional_cost
from nvtrader_pipelines.portfolio.financing import Financing
from tests.envs.two_names import EXPENSIVE, FILLS, FREE, run, two_names
from tests.panels import LAST_PRICE, MAX_GAP, eventful_panel

OVER_A_WEEKEND = two_names([[0.0, 0.0]] * 3, [[0.0, 0.0]] * 3)  # Friday, Monday, Tuesday


@pytest.mark.parametrize(("fill", "first"), [("next_open", 0.0), ("next_close", 0.0), ("same_close", 3.0)])
def test_held_positions_pay_for_calendar_days_to_the_next_close(fill, first):
    assert np.diff(OVER_A_WEEKEND.sessions).astype(int).tolist() == [3, 1]
    done = run(OVER_A_WEEKEND, fill, [0.0, 0.0, 1.0], [2.0, -0.5, -0.5], 2, financing=EXPENSIVE)
    a_day = (0.5 * 0.20 + 0.5 * 0.10) / 360
    paid = 1.0 - done.session_growth[0]
    np.testing.assert_allclose(paid, np.array([first, 1.0]) * a_day, rtol=5e-3)  # what was paid is owed too


def test_debt_repaid_at_the_open_pays_for_the_nights_before():
    done = run(OVER_A_WEEKEND, "next_open", [1.5, 0.0, -0.5], [1.0, 0.0, 0.0], 2, financing=EXPENSIVE)
    np.testing.assert_allclose(done.session_growth[0], [1.0 - 3 * 0.5 * 0.20 / 360, 1.0], rtol=1e-15)
    assert done.executed[0].tolist() == [1.0, 0.0, 0.0]


def test_short_proceeds_buy_other_names_without_interest():
    free_of_debt = run(OVER_A_WEEKEND, "same_close", [0.0, 0.0, 1.0], [1.3, -0.3, 0.0], 1, financing=EXPENSIVE)
    np.testing.assert_allclose(free_of_debt.growth, 1.0 - 3 * 0.3 * 0.10 / 360, rtol=1e-15)


@given(seed=st.integers(0, 2**32 - 1), fill=st.sampled_from(FILLS))
def test_long_only_account_does_not_depend_on_financing(seed, fill):
    generator = np.random.default_rng(seed)
    panel, n = eventful_panel(120, seed=seed % 7), 16
    start, target = generator.dirichlet(np.full(7, 0.2), (2, n))
    at, trade = generator.integers(0, 110, n), generator.random(n) < 0.8
    dear, free = (
        hold(start, target, trade, holding_period(market_legs(panel, fill, financing), at, 5), proportional_cost(0.001))
        for financing in (EXPENSIVE, FREE)
    )
    for name in vars(dear):
        np.testing.assert_array_equal(getattr(dear, name), getattr(free, name))


def test_delisted_short_is_closed_at_its_last_price_without_cost():
    panel = eventful_panel()
    short = [0.0, 0.0, 0.0, -0.4, 0.0, 0.0, 1.4]
    gone = run(panel, "next_close", short, short, 2, cost_rate=0.01, t=LAST_PRICE + MAX_GAP, trade=False)
    np.testing.assert_allclose(gone.executed[0], [0, 0, 0, 0, 0, 0, 1], atol=1e-15)
    assert gone.turnover.tolist() == gone.cost.tolist() == [0.0]


def test_unpriced_name_reduces_the_room_for_leveraged_targets():
    panel = two_names([[0.0, 0.0]] * 2, tradable=[[True, True], [False, True]])
    done = run(panel, "next_close", [1.2, 0.0, -0.2], [0.0, 1.5, -0.5], 1)
    np.testing.assert_allclose(done.executed[0], [1.2, 0.3, -0.5], atol=1e-15)


@pytest.mark.parametrize(
    ("weights", "first"), [([3.0, 0.0, -2.0], -0.40), ([-1.0, 0.0, 2.0], 1.50), ([2.0, 0.0, -1.0], -0.50)]
)
@pytest.mark.parametrize("fill", ["next_close", "same_close"])
def test_account_that_loses_everything_has_equity_zero(weights, first, fill):
    panel = two_names([[0.0, 0.0], [first, 0.0], [0.5, 0.5]])
    done = run(panel, fill, weights, weights, 2, cost_rate=0.001, financing=EXPENSIVE)
    assert done.session_growth[0].tolist() == [0.0, 1.0]
    assert done.weights[0].tolist() == [0.0, 0.0, 1.0]
    if fill == "next_close":  # lost before the order could fill
        assert done.turnover.tolist() == done.cost.tolist() == [0.0]


def test_charges_above_equity_ruin_the_account():
    usury = Financing(margin_rate=200.0, borrow_fee=0.0)
    done = run(OVER_A_WEEKEND, "same_close", [2.0, 0.0, -1.0], [2.0, 0.0, -1.0], 2, financing=usury)
    assert done.session_growth[0].tolist() == [0.0, 1.0]


# --- what is refused ---------------------------------------------------------------------------------------------
