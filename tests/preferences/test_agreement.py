import datetime as dt

import numpy as np
import polars as pl
import pytest
from scipy import stats

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.preferences.agreement import agreement, mean_error

DAYS = NEW_YORK.sessions(dt.date(2024, 1, 2), dt.date(2024, 12, 31))
EXCESS = np.random.default_rng(0).normal(0.4, 1.0, 12)


def outcomes(days=DAYS[:60:5], excess=EXCESS, decision="overridden", reason="too much", weight=1.0):
    n = len(excess)
    columns = {
        "session": days,
        "session_number": NEW_YORK.session_numbers(days),
        "decision": [decision] * n,
        "reason": [reason] * n,
        "excess_pct": excess,
    }
    return pl.DataFrame({**columns, "weight": [weight] * n})


def test_interval_of_outcomes_that_do_not_overlap_is_students():
    summary = agreement(outcomes())
    low, high = stats.t.interval(0.95, 11, EXCESS.mean(), stats.sem(EXCESS))
    assert summary["by"].to_list() == ["overrides", "decision", "reason", "month", "month", "month"]
    for row in summary.head(3).iter_rows(named=True):
        assert (row["n"], row["n_better"]) == (12, int((EXCESS > 0.0).sum()))
        assert (row["mean_pct"], row["low_pct"], row["high_pct"]) == pytest.approx((EXCESS.mean(), low, high))


def test_outcomes_from_before_sessions_were_numbered_do_not_count():
    unnumbered = outcomes().with_columns(session_number=pl.lit(None, pl.Int64))
    assert agreement(pl.concat([outcomes(), unnumbered])).equals(agreement(outcomes()))


def test_outcomes_of_one_session_count_as_one():
    same, days = np.repeat(EXCESS, 2), np.repeat(DAYS[:60:5], 2)
    alone, twice = (
        mean_error(EXCESS, NEW_YORK.session_numbers(DAYS[:60:5])),
        mean_error(same, NEW_YORK.session_numbers(days)),
    )
    assert (twice.error, twice.degrees) == pytest.approx((alone.error, alone.degrees))


@pytest.mark.parametrize("places", [range(2), range(5), range(12), range(60), range(0, 60, 5), range(0, 24, 2)])
def test_interval_covers_the_truth_where_outcomes_share_returns(places):
    generator, places, n_draws = np.random.default_rng(0), np.array(places), 1000
    returns = generator.standard_normal((n_draws, places.max() + 6))
    excess = np.stack([returns[:, place + 1 : place + 6].sum(axis=1) for place in places], axis=1)
    errors = [mean_error(row, places) for row in excess]
    halves = np.array([stats.t.ppf(0.975, error.degrees) * error.error for error in errors])
    covered = float((np.abs(excess.mean(axis=1)) <= halves).mean())
    assert 0.93 < covered < 0.995


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


def test_practice_is_summarized_alone_and_changes_no_count():
    counted = outcomes().with_columns(practice=False)
    practice = outcomes(excess=-EXCESS, decision="edited", weight=0.0).with_columns(practice=True)
    unmarked = outcomes(weight=0.0).with_columns(practice=pl.lit(None, pl.Boolean))  # from before practice
    rows = pl.concat([counted, practice, unmarked])
    assert agreement(rows).equals(agreement(counted))
    summary = agreement(rows, practice=True)
    assert summary.equals(agreement(practice.with_columns(weight=1.0)))
    assert summary.row(0, named=True)["n_better"] == int((EXCESS < 0.0).sum())


def test_one_session_has_no_interval():
    summary = agreement(outcomes(DAYS[:1], EXCESS[:1]))
    assert summary["low_pct"].to_list() == summary["high_pct"].to_list() == [None] * 4
