import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import linregress

from nvtrader_pipelines.evaluation.prudex.profitability import excess_growth, excess_growth_slope
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

returns = arrays(np.float64, 20, elements=st.floats(-0.2, 0.2))


def test_excess_growth_by_hand():
    assert excess_growth(np.array([1.0, 0.0]), np.array([0.0, 0.0]), 2) == pytest.approx(np.log(2.0))


@given(mine=returns, market=returns)
def test_excess_growth_is_that_of_the_ratio_of_wealth(mine, market):
    ratio = np.prod(1.0 + mine) / np.prod(1.0 + market)
    assert excess_growth(mine, market, 252) == pytest.approx(np.log(ratio) / 20 * 252, abs=1e-9)


@given(excess=arrays(np.float64, st.integers(2, 12), elements=st.floats(-1.0, 1.0)))
def test_a_decay_is_the_slope_of_a_regression(excess):
    assert excess_growth_slope(excess) == pytest.approx(linregress(range(len(excess)), excess).slope, abs=1e-12)


def test_one_window_has_no_decay():
    with pytest.raises(UndefinedStatisticError):
        excess_growth_slope(np.array([0.1]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_unequal_lengths_and_what_is_no_number_are_refused(bad):
    with pytest.raises(ValueError):
        excess_growth(np.zeros(3), np.zeros(4), 252)
    with pytest.raises(ValueError):
        excess_growth(np.array([0.1, bad]), np.zeros(2), 252)
    with pytest.raises(ValueError):
        excess_growth_slope(np.array([0.1, bad]))


def test_who_lost_everything_has_no_log_growth():
    with pytest.raises(UndefinedStatisticError):
        excess_growth(np.array([0.1, -1.0]), np.zeros(2), 252)
