import datetime as dt

import numpy as np
import polars as pl
import pytest
from scipy import stats

from nvtrader_pipelines.market.calendar import session_numbers, sessions
from nvtrader_pipelines.preferences.agreement import agreement, standard_error

DAYS = sessions(dt.date(2024, 1, 2), dt.date(2024, 12, 31))
EXCESS = np.random.default_rng(0).normal(0.4, 1.0, 12)


def outcomes(days=DAYS[:60:5], excess=EXCESS, decision="overridden", reason="too much", weight=1.0):
    n = len(excess)
    columns = {"session": days, "decision": [decision] * n, "reason": [reason] * n, "excess_pct": excess}
    return pl.DataFrame({**columns, "weight": [weight] * n})


def test_interval_of_outcomes_that_do_not_overlap_is_students():
    summary = agreement(outcomes())
    low, high = stats.t.interval(0.95, 11, EXCESS.mean(), stats.sem(EXCESS))
    assert summary["by"].to_list() == ["overrides", "decision", "reason", "month", "month", "month"]
    for row in summary.head(3).iter_rows(named=True):
        assert (row["n"], row["n_better"]) == (12, int((EXCESS > 0.0).sum()))
        assert (row["mean_pct"], row["low_pct"], row["high_pct"]) == pytest.approx((EXCESS.mean(), low, high))


def test_windows_that_overlap_widen_the_interval():
    same = np.repeat(EXCESS, 2)
    days = np.repeat(DAYS[:60:5], 2)
    alone, twice = standard_error(EXCESS, session_numbers(DAYS[:60:5])), standard_error(same, session_numbers(days))
    assert twice == pytest.approx(alone)  # two accounts that do the same tell no more than one
    trending = np.sort(EXCESS)
    assert standard_error(trending, session_numbers(DAYS[:12])) > 1.5 * standard_error(
        trending, session_numbers(days[::2])
    )


def test_groups_are_overrides_decisions_reasons_and_months_of_outcomes_that_count():
    rows = pl.concat(
        [
            outcomes(),
            outcomes(decision="rejected", reason=" Earnings "),
            outcomes(decision="approved", reason=""),
            outcomes(decision="edited", reason="earnings", weight=0.0),
        ]
    )
    summary = agreement(rows)
    names = dict(summary.group_by("by").agg("name").rows())
    assert names == {
        "overrides": ["edited or overridden"],
        "decision": ["approved", "overridden", "rejected"],
        "reason": ["earnings", "too much"],
        "month": ["2024-01", "2024-02", "2024-03"],
    }
    assert summary.filter(by="month")["n"].to_list() == [15, 12, 9]
    assert agreement(rows.filter(weight=0.0)).is_empty()


def test_one_session_has_no_interval():
    summary = agreement(outcomes(DAYS[:1], EXCESS[:1]))
    assert summary["low_pct"].to_list() == summary["high_pct"].to_list() == [None] * 4
