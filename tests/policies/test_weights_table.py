import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.policies.weights_table import WeightsPolicy, WeightsTable
from tests.markets import synthetic_panel

PANEL = synthetic_panel(60, 3)
DAYS = PANEL.sessions[[5, 10, 30]]
NAMES = ("AAA", "BBB")


def frame(**columns):
    rows = {"date": [str(day) for day in DAYS], "BBB": ["0.5", "0.2", "0"], "AAA": ["0.25", "0.3", "1"]}
    return pl.DataFrame({**rows, **columns})


def decided(policy, first, last):
    account = opening_account(3)
    return {t: policy.decide(PANEL, t, account).target for t in range(first, last)}


def test_rows_are_decided_on_their_days_and_held_in_between():
    policy = WeightsPolicy(*WeightsTable.of(frame()).decisions(PANEL))
    found = decided(policy, 5, 40)
    assert [t for t, target in found.items() if target is not None] == [5, 10, 30]
    np.testing.assert_allclose(found[5], [0.25, 0.5, 0.0, 0.25])
    np.testing.assert_allclose(found[30], [1.0, 0.0, 0.0, 0.0])


def test_the_first_decision_takes_over_the_latest_row_before_it():
    policy = WeightsPolicy(*WeightsTable.of(frame()).decisions(PANEL))
    found = decided(policy, 20, 40)
    assert [t for t, target in found.items() if target is not None] == [20, 30]
    np.testing.assert_allclose(found[20], [0.3, 0.2, 0.0, 0.5])


def test_rows_that_begin_after_the_first_decision_are_refused():
    policy = WeightsPolicy(*WeightsTable.of(frame()).decisions(PANEL))
    with pytest.raises(ValueError, match=rf"first decision, on {PANEL.sessions[4]}, or before, but begin on {DAYS[0]}"):
        decided(policy, 4, 5)


def test_a_column_of_cash_may_stand_anywhere():
    table = WeightsTable.of(frame(cash=["0.25", "0.5", "0"]).select("cash", "date", "AAA", "BBB"))
    assert table.symbols == ("AAA", "BBB", "cash")
    np.testing.assert_allclose(table.decisions(PANEL)[1][0], [0.25, 0.5, 0.0, 0.25])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"AAA": ["0.25", None, "1"]}, "'AAA' .* a number in every row, but row 2 has nothing"),
        ({"AAA": ["0.25", "much", "1"]}, "'AAA' .* row 2 has 'much'"),
        ({"AAA": ["0.25", "NaN", "1"]}, "finite numbers, but AAA has nan"),
        ({"AAB": ["0", "0", "0"]}, "AAB not of the panel; .* did you mean 'AAA'"),
        ({"AAA": ["0.25", "0.9", "1"]}, r"at most the gross limit 1, but 1 of 3 rows sum to more, the first to 1.1"),
        ({"cash": ["0.5", "0.5", "0"]}, "sum to 1, but 1 of 3 rows do not"),
        ({"date": ["2015-01-03", "2015-01-10", "2015-02-18"]}, "2 of 3 decisions are on no session|3 of 3 decisions"),
        ({"date": ["02/01/2015", "03/01/2015", "04/01/2015"]}, "'date' .* row 1 has '02/01/2015'"),
        ({"date": ["a", "b", "c"]}, "'date' .* a date such as 2001-01-31 in every row, but row 1 has 'a'"),
        ({"date": [str(day) for day in DAYS[::-1]]}, "must ascend"),
    ],
    ids=["empty", "text", "nan", "symbol", "gross", "cash", "weekend", "day first", "date", "order"],
)
def test_rows_that_are_no_portfolios_of_the_market_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        WeightsTable.of(frame(**changes)).decisions(PANEL)


@pytest.mark.parametrize("rows", [frame().drop("date"), frame().clear(), frame().select("date"), pl.DataFrame()])
def test_a_table_without_days_names_or_rows_is_refused(rows):
    with pytest.raises(ValueError, match="weights need a column 'date', a column per symbol and at least one row"):
        WeightsTable.of(rows)


def test_an_empty_row_is_none():
    rows = pl.concat([frame(), frame().clear(1)])
    assert WeightsTable.of(rows).decisions(PANEL)[1].tolist() == WeightsTable.of(frame()).decisions(PANEL)[1].tolist()


def test_what_is_no_table_of_weights_is_not_quoted():
    with pytest.raises(ValueError, match="there are 1 rows of 1 columns, none of them 'date'") as caught:
        WeightsTable.of(pl.DataFrame({"secret": ["x"]}))
    assert "secret" not in str(caught.value)
