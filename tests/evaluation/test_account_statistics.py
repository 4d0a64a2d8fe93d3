from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.evaluation.account_statistics import (
    Leverage,
    cost_per_year,
    effective_names,
    execution_latency,
    exposure,
    leverage,
    turnover_per_year,
)

MISSING = np.array([0.1, np.nan])


def test_turnover_and_costs_are_of_a_year_whatever_the_number_of_sessions():
    weekly = np.tile([0.1, 0.0, 0.0, 0.0, 0.0], 100)
    for per_year in (turnover_per_year, cost_per_year):
        assert per_year(weekly, 252) == pytest.approx(0.1 * 252 / 5)
        assert per_year(weekly[:250], 252) == pytest.approx(per_year(weekly, 252))


def test_exposure_exceeds_one_with_debt():
    assert exposure(np.array([0.2, 0.4])) == pytest.approx(0.7)
    assert exposure(np.array([-0.5, -0.5])) == pytest.approx(1.5)


@pytest.mark.slow
@given(weights=arrays(float, (5, 7), elements=st.floats(0.01, 1.0)))
def test_unequal_holdings_are_fewer_names(weights):
    found = effective_names(weights)
    assert ((found >= 1.0 - 1e-9) & (found <= 7.0 + 1e-9)).all()
    np.testing.assert_allclose(found, 1.0 / ((weights / weights.sum(axis=1, keepdims=True)) ** 2).sum(axis=1))


def test_effective_names_of_short_positions_and_cash():
    assert effective_names(np.array([[0.5, -0.5], [0.0, 0.0], [0.3, 0.0]])).tolist() == [2.0, 0.0, 1.0]


def test_leverage_has_mean_and_highest_gross_and_financing_of_a_year():
    assert leverage(np.array([1.0, 1.5, 2.0]), np.full(3, 0.0001), 252) == Leverage(1.5, 2.0, pytest.approx(0.0252))


def test_execution_latency_is_the_median_and_the_99th_percentile():
    found = execution_latency(np.arange(101.0) / 10.0)
    assert (found.median, found.p99) == pytest.approx((5.0, 9.9))
    assert execution_latency([0.25]).p99 == 0.25


@pytest.mark.parametrize(
    "statistic",
    [
        partial(turnover_per_year, periods_per_year=252),
        partial(cost_per_year, periods_per_year=252),
        exposure,
        execution_latency,
        lambda rows: effective_names(rows[:, None]),
    ],
    ids=["turnover", "cost", "exposure", "latency", "names"],
)
@pytest.mark.parametrize("values", [MISSING, np.array([])], ids=["missing", "empty"])
def test_missing_numbers_are_refused(statistic, values):
    with pytest.raises(ValueError):
        statistic(values)


def test_a_duration_below_zero_is_refused():
    with pytest.raises(ValueError):
        execution_latency([0.2, -0.1])
