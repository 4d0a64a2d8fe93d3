"""Accounts on shared sessions, by hand."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.shared_sessions import (
    compound_to_shared_sessions,
    select_shared_sessions,
    shared_curves,
    shared_figures,
)

DAYS = [date(2024, 1, day) for day in (2, 3, 4, 5)]


@pytest.fixture
def shared():
    """Two accounts that share the last two of three sessions each has."""
    long = pl.DataFrame({"account": "long", "session": DAYS, "net_return": [0.5, -0.1, 0.2, 0.1]})
    late = pl.DataFrame({"account": "late", "session": DAYS[2:], "net_return": [-0.5, 0.5]})
    return select_shared_sessions(pl.concat([long, late]))


def test_shared_sessions_are_those_of_every_account(shared):
    assert shared["session"].unique().sort().to_list() == DAYS[2:]
    assert shared["account"].unique(maintain_order=True).to_list() == ["long", "late"]


def test_returns_of_days_that_another_calendar_lacks_count_with_the_next_shared_one():
    friday, saturday, sunday, monday = (date(2024, 1, day) for day in (5, 6, 7, 8))
    coins = pl.DataFrame(
        {"account": "coins", "session": [friday, saturday, sunday, monday], "net_return": [0.1, 0.2, -0.5, 0.3]}
    )
    stocks = pl.DataFrame({"account": "stocks", "session": [friday, monday], "net_return": [0.01, 0.02]})
    both = compound_to_shared_sessions(pl.concat([coins, stocks]))
    by_account = both.partition_by("account", as_dict=True)
    np.testing.assert_allclose(by_account[("coins",)]["net_return"], [0.1, 1.2 * 0.5 * 1.3 - 1.0])
    np.testing.assert_allclose(by_account[("stocks",)]["net_return"], [0.01, 0.02])


def test_shared_curves_start_at_one_unit_before_first_shared_session(shared):
    curves = shared_curves(shared, 252)
    assert curves["account"].to_list() == ["long", "long", "late", "late"]
    np.testing.assert_allclose(curves["equity"], [1.2, 1.32, 0.5, 0.75])
    np.testing.assert_allclose(curves["drawdown"], [0.0, 0.0, 0.5, 0.25])
    assert curves["sharpe"].null_count() == 4


def test_shared_figures_hold_statistics_over_shared_sessions(shared):
    late = shared_figures(shared, 252).row(1, named=True)
    assert (late["account"], late["first_session"], late["last_session"], late["n_sessions"]) == (
        "late", DAYS[2], DAYS[3], 2,
    )  # fmt: skip
    assert late["total_return"] == pytest.approx(-0.25)
    assert late["max_drawdown"] == pytest.approx(0.5)
    assert late["sharpe"] == 0.0


def test_accounts_without_common_session_share_nothing():
    apart = pl.DataFrame({"account": ["a", "b"], "session": DAYS[:2], "net_return": [0.1, 0.1]})
    assert select_shared_sessions(apart).is_empty()


def test_difference_to_the_first_account_has_a_paired_interval():
    returns = np.random.default_rng(0).normal(0.0005, 0.01, 300)
    days = [date(2024, 1, 1) + timedelta(days=i) for i in range(300)]
    parts = [("a", returns), ("b", returns + 1e-4), ("c", -returns)]
    rows = [pl.DataFrame({"account": name, "session": days, "net_return": own}) for name, own in parts]
    figures = shared_figures(pl.concat(rows), 252)
    first, above, opposite = figures["sharpe_difference"].to_list()
    assert first is None
    assert above == pytest.approx(1e-4 / returns.std(ddof=1) * 252**0.5)
    assert opposite == pytest.approx(-2.0 * figures["sharpe"][0])
    assert (
        above * 0.8 < figures["sharpe_difference_low"][1] < above < figures["sharpe_difference_high"][1] < above * 1.2
    )
