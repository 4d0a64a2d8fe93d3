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


def test_policy_trades_only_on_the_days_of_rows():
    policy = WeightsPolicy(*WeightsTable.from_frame(frame()).decisions(PANEL))
    found = decided(policy, 5, 40)
    assert [t for t, target in found.items() if target is not None] == [5, 10, 30]
    np.testing.assert_allclose(found[5], [0.25, 0.5, 0.0, 0.25])
    np.testing.assert_allclose(found[30], [1.0, 0.0, 0.0, 0.0])


def test_first_decision_uses_the_latest_earlier_row():
    policy = WeightsPolicy(*WeightsTable.from_frame(frame()).decisions(PANEL))
    found = decided(policy, 20, 40)
    assert [t for t, target in found.items() if target is not None] == [20, 30]
    np.testing.assert_allclose(found[20], [0.3, 0.2, 0.0, 0.5])


def test_rows_that_start_after_the_first_decision_raise():
    policy = WeightsPolicy(*WeightsTable.from_frame(frame()).decisions(PANEL))
    with pytest.raises(ValueError):
        decided(policy, 4, 5)


def test_a_column_of_cash_may_stand_anywhere():
    table = WeightsTable.from_frame(frame(cash=["0.25", "0.5", "0"]).select("cash", "date", "AAA", "BBB"))
    assert table.symbols == ("AAA", "BBB", "cash")
    np.testing.assert_allclose(table.decisions(PANEL)[1][0], [0.25, 0.5, 0.0, 0.25])


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"AAA": ["0.25", None, "1"]}, "'AAA' .*row 2"),
        ({"AAA": ["0.25", "much", "1"]}, "'AAA' .*row 2 .*'much'"),
        ({"AAA": ["0.25", "NaN", "1"]}, "AAA .*nan"),
        ({"AAB": ["0", "0", "0"]}, "AAB.*'AAA'"),
        ({"AAA": ["0.25", "0.9", "1"]}, "gross limit 1, .*1 of 3 .*1.1"),
        ({"cash": ["0.5", "0.5", "0"]}, "sum to 1, .*1 of 3"),
        ({"date": ["2015-01-03", "2015-01-10", "2015-02-18"]}, "2 of 3 .*2015-01-03"),
        ({"date": ["02/01/2015", "03/01/2015", "04/01/2015"]}, "'date' .*row 1 .*'02/01/2015'"),
        ({"date": ["a", "b", "c"]}, "'date' .*2001-01-31.*row 1 .*'a'"),
        ({"date": [str(day) for day in DAYS[::-1]]}, "must ascend"),
    ],
    ids=["empty", "text", "nan", "symbol", "gross", "cash", "weekend", "day first", "date", "order"],
)
def test_decisions_raise_for_invalid_rows(changes, parts):
    with pytest.raises(ValueError, match=parts):
        WeightsTable.from_frame(frame(**changes)).decisions(PANEL)


@pytest.mark.parametrize("rows", [frame().drop("date"), frame().clear(), frame().select("date"), pl.DataFrame()])
def test_table_without_days_names_or_rows_raises(rows):
    with pytest.raises(ValueError):
        WeightsTable.from_frame(rows)


def test_empty_rows_are_skipped():
    rows = pl.concat([frame(), frame().clear(1)])
    assert (
        WeightsTable.from_frame(rows).decisions(PANEL)[1].tolist()
        == WeightsTable.from_frame(frame()).decisions(PANEL)[1].tolist()
    )


def test_error_does_not_quote_foreign_files():
    with pytest.raises(ValueError) as caught:
        WeightsTable.from_frame(pl.DataFrame({"secret": ["x"]}))
    assert "secret" not in str(caught.value)
