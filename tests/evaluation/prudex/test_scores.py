import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.prudex.measures import STATISTICS
from nvtrader_pipelines.evaluation.prudex.scores import with_scores

numbers = st.floats(-10.0, 10.0)


def scores(values, market, statistic="total_return", task="a"):
    rows = pl.DataFrame({"value": values, "market": market}, schema={"value": pl.Float64, "market": pl.Float64})
    return with_scores(rows.with_columns(statistic=pl.lit(statistic), task=pl.lit(task)), ["task"])["score"].to_list()


def test_farthest_account_scores_0_or_100_others_in_proportion():
    assert scores([0.2, 0.1, 0.05, 0.0], [0.1] * 4) == pytest.approx([100.0, 50.0, 25.0, 0.0])


def test_where_lower_is_better_the_scale_is_turned():
    assert scores([0.2, 0.1, 0.05, 0.0], [0.1] * 4, "max_drawdown") == pytest.approx([0.0, 50.0, 75.0, 100.0])


@given(values=st.lists(numbers, min_size=1, max_size=8), market=numbers)
def test_scores_are_within_their_range_and_the_market_has_fifty(values, market):
    found = scores([*values, market], [market] * (len(values) + 1))
    assert all(-1e-9 <= score <= 100.0 + 1e-9 for score in found)
    assert found[-1] == 50.0


@given(values=st.lists(numbers, min_size=2, max_size=8), market=numbers)
def test_a_higher_value_never_has_a_lower_score(values, market):
    found = scores(sorted(values), [market] * len(values))
    assert found == sorted(found)


def test_accounts_that_differ_by_rounding_only_have_fifty():
    assert scores([0.1, 0.1 + 1e-16, 0.1 - 1e-16], [0.1] * 3) == [50.0, 50.0, 50.0]


def test_tasks_have_scales_of_their_own():
    rows = pl.DataFrame({"task": ["a", "b"], "value": [0.2, 0.9], "market": [0.1, 0.0], "statistic": "sharpe"})
    assert with_scores(rows, ["task"])["score"].to_list() == [100.0, 100.0]
    assert with_scores(rows, [])["score"].to_list() == pytest.approx([50.0 * (1.0 + 0.1 / 0.9), 100.0])


def test_missing_value_or_market_has_no_score():
    assert scores([0.2, None, 0.0], [0.1, 0.1, None]) == [100.0, None, None]


def test_what_only_describes_has_no_score():
    described = [name for name, statistic in STATISTICS.items() if not statistic.scored]
    assert described == ["final_equity", "trustworthiness", "largest_weight", "seed_deviation", "surrogate_r2"]
    assert [scores([1.0], [0.5], name) for name in described] == [[None]] * 5
