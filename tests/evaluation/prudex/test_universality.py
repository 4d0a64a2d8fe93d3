import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.evaluation.prudex.scores import share_ahead
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

groups = arrays(np.float64, st.integers(2, 12), elements=st.floats(-3.0, 3.0))


def test_a_share_by_hand_counts_a_tie_as_half():
    assert share_ahead(np.array([1.0, 0.5, 0.2, 0.9]), np.array([0.5, 0.5, 0.5, 0.5])) == 0.625


def test_numbers_that_differ_by_rounding_only_are_tied():
    assert share_ahead(np.array([0.1 + 0.2, 0.4]), np.array([0.3, 0.5])) == 0.25


@given(values=groups)
def test_the_market_is_ahead_of_itself_in_half(values):
    assert share_ahead(values, values) == 0.5


@given(values=groups)
def test_what_one_is_ahead_the_other_is_behind(values):
    other = values[::-1].copy()
    assert share_ahead(values, other) + share_ahead(other, values) == pytest.approx(1.0)


def test_one_group_says_nothing_of_others():
    with pytest.raises(UndefinedStatisticError):
        share_ahead(np.array([1.0]), np.array([0.5]))


@pytest.mark.parametrize(("mine", "market"), [([1.0, 2.0], [1.0]), ([1.0, np.nan], [1.0, 2.0])])
def test_unequal_lengths_and_what_is_no_number_are_refused(mine, market):
    with pytest.raises(ValueError):
        share_ahead(np.array(mine), np.array(market))
