import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.execution.reconciliation import Difference, reconcile

HELD = {"A": 10.0, "B": 2.5}
shares = st.dictionaries(st.sampled_from("ABCDE"), st.floats(0, 1e6))


@given(held=shares)
def test_equal_holdings_have_no_differences(held):
    assert reconcile(held, held) == []


@given(expected=shares, actual=shares)
def test_differences_are_symmetric(expected, actual):
    there, back = reconcile(expected, actual), reconcile(actual, expected)
    assert [(each.symbol, each.expected, each.actual) for each in there] == [
        (each.symbol, each.actual, each.expected) for each in back
    ]


@pytest.mark.parametrize(
    ("held", "n_differences"), [(10.0, 0), (10.0 + 9e-7, 0), (10.0 - 9e-7, 0), (10.0 + 2e-6, 1), (10.0 - 2e-6, 1)]
)
def test_differences_start_above_the_tolerance(held, n_differences):
    assert len(reconcile({"A": 10.0}, {"A": held})) == n_differences


def test_names_on_one_side_only_are_differences():
    assert reconcile({"B": 2.0}, {"A": 1.0}) == [Difference("A", 0.0, 1.0), Difference("B", 2.0, 0.0)]


def test_zero_shares_equal_a_missing_name():
    assert reconcile({"A": 0.0}, {}) == []


def test_nan_shares_are_a_difference():
    assert [each.symbol for each in reconcile(HELD, {**HELD, "B": float("nan")})] == ["B"]


def test_sentence_of_a_difference_has_both_numbers():
    (difference,) = reconcile(HELD, {**HELD, "A": 9.0})
    assert difference.sentence == "A: 10 shares expected, 9 held (-1)"
