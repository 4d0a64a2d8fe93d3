import polars as pl
import pytest

from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.stale_plans import PlanChanges, StalePlan, changed_holdings, revised_symbols
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from tests.execution.plans import HELD, SYMBOLS, a_plan
from tests.markets import csv_file, market_tables, synthetic_bars

RETURNS = pl.DataFrame(
    {"symbol": ["A", "B", "C"], "close_return": [0.01, -0.02, None], "overnight_return": [0.0, None, None]}
)


def state_of(**weights):
    """State of an account that holds these weights beside those of `HELD`."""
    held = dict(zip(SYMBOLS, HELD, strict=True)) | weights
    return AccountState.model_construct(symbols=tuple(held), weights=tuple(held.values()))


def test_changed_holdings_compare_weights_by_symbol():
    plan = a_plan()
    assert changed_holdings(plan, state_of()) == {}
    assert changed_holdings(plan, state_of(Z=0.0, A=0.2 + 1e-15)) == {}
    assert changed_holdings(plan, state_of(A=0.1, Z=0.1)) == {"A": (0.2, 0.1), "Z": (0.0, 0.1)}


def test_stale_plan_names_its_three_largest_holdings():
    holdings = {"A": (0.2, 0.21), "B": (0.2, 0.0), "C": (0.0, 0.1), "D": (0.2, 0.15)}
    error = StalePlan(a_plan(), "overridden", PlanChanges(holdings=holdings))
    assert error.changes.holdings == holdings
    assert "(B from 20.00% to 0.00%, C from 0.00% to 10.00%, D from 20.00% to 15.00%)" in str(error)


def test_stale_plan_names_every_change():
    changes = PlanChanges(PolicyRef("b" * 16, "other"), {"A": (0.2, 0.1)}, ("B", "C"))
    sentence = str(StalePlan(a_plan(), "approved", changes))
    for part in (f"other of run {'b' * 16} instead of tiny of run {'a' * 16}", "A from 20", "2022-03-10", "(B, C)"):
        assert part in sentence


@pytest.mark.parametrize(
    ("after", "symbols"),
    [
        (RETURNS, ()),
        (RETURNS.with_columns(pl.col("close_return") + 5e-5), ()),  # rounding of a rescaled history
        (RETURNS.with_columns(pl.col("close_return") + 5e-4), ("A", "B")),
        (RETURNS.with_columns(pl.col("overnight_return") - 5e-4), ("A",)),
        (RETURNS.with_columns(pl.col("overnight_return").fill_null(0.0)), ("B", "C")),
        (RETURNS.filter(pl.col("symbol") != "B"), ("B",)),
        (pl.concat([RETURNS, RETURNS[:1].with_columns(symbol=pl.lit("D"))]), ("D",)),
    ],
)
def test_revised_symbols_have_other_returns_of_the_session(after, symbols):
    assert revised_symbols(RETURNS, after) == symbols


BARS = synthetic_bars(n_sessions=12)
DAYS = BARS["date"].unique().sort()
DECIDED = pl.col("date") == DAYS[10]


def rows_of(bars):
    """Returns of the deciding session."""
    rows = market_tables(csv_file(bars)).returns
    return rows.filter(pl.col("session") == pl.lit(DAYS[10]).str.to_date())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "symbols"),
    [
        ({"adj_close": pl.when(pl.col("date") <= DAYS[10]).then(0.97).otherwise(1.0)}, ()),  # a dividend
        ({"open": 0.5, "high": 0.5, "low": 0.5, "close": 0.5, "adj_close": 0.5, "volume": 2.0}, ()),  # a split
        ({name: pl.when(DECIDED).then(1.01).otherwise(1.0) for name in ("high", "close", "adj_close")}, ("AAA",)),
    ],
)
def test_revised_symbols_are_those_of_corrected_bars_only(changes, symbols):
    is_changed = pl.col("symbol") == "AAA"
    after = BARS.with_columns(
        pl.when(is_changed).then(pl.col(name) * factor).otherwise(pl.col(name)) for name, factor in changes.items()
    )
    assert revised_symbols(rows_of(BARS.filter(pl.col("date") <= DAYS[10])), rows_of(after)) == symbols
