from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.evaluation.prudex.measures import EXTREME_MARKETS, ExtremeMarket
from nvtrader_pipelines.evaluation.prudex.risk_control import downside_deviation, sessions_within
from nvtrader_pipelines.evaluation.statistics import (
    UndefinedStatisticError,
    sortino_ratio,
)
from nvtrader_pipelines.market.calendar import NEW_YORK

CRISIS = next(market for market in EXTREME_MARKETS if market.name == "financial_crisis")


def days(first, last):
    return np.arange(np.datetime64(first), np.datetime64(last) + 1)


def test_downside_deviation_by_hand_counts_gains_as_losses_of_nothing():
    assert downside_deviation(np.array([0.3, -0.1, 0.2, -0.1]), periods_per_year=2) == pytest.approx(0.1)


@given(returns=arrays(np.float64, 30, elements=st.floats(-0.2, 0.2)).filter(lambda r: r.min() < -1e-6))
def test_a_sortino_ratio_is_the_yearly_mean_over_the_downside_deviation(returns):
    assert sortino_ratio(returns, 252) == pytest.approx(
        returns.mean() * 252 / downside_deviation(returns, 252), rel=1e-9
    )


def test_sessions_within_includes_first_and_last_day():
    sessions = days("2008-01-01", "2010-01-01")
    inside = sessions[sessions_within(sessions, CRISIS)]
    assert (inside[0].item(), inside[-1].item()) == (date(2008, 9, 1), date(2009, 3, 31))


def test_extreme_market_starting_on_a_holiday_is_covered():
    sessions = NEW_YORK.sessions(date(2008, 9, 1), date(2009, 4, 30))  # 1 September 2008 was Labor Day
    assert sessions_within(sessions, CRISIS).sum() == len(NEW_YORK.sessions(CRISIS.first, CRISIS.last))


@pytest.mark.parametrize(
    "sessions", [days("2008-10-01", "2010-01-01"), days("2008-01-01", "2009-03-01"), days("2008-01-02", "2008-01-01")]
)
def test_an_extreme_market_that_was_not_lived_through_whole_has_no_number(sessions):
    with pytest.raises(UndefinedStatisticError):
        sessions_within(sessions, CRISIS)


def test_an_extreme_market_between_two_windows_has_no_number():
    apart = np.concatenate([days("2007-01-01", "2008-06-01"), days("2009-06-01", "2010-01-01")])
    with pytest.raises(UndefinedStatisticError):
        sessions_within(apart, CRISIS)


def test_extreme_markets_are_in_order_and_apart():
    spans = [(market.first, market.last) for market in EXTREME_MARKETS]
    flat = [day for span in spans for day in span]
    assert flat == sorted(flat)
    assert all(isinstance(market, ExtremeMarket) for market in EXTREME_MARKETS)


def test_returns_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError):
        downside_deviation(np.array([0.1, np.nan]), 252)
