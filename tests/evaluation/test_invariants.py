"""Truth checks: what breaks an identity is found, and nothing else."""

import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.invariants import (
    inconsistent_entrants,
    off_portfolio,
    outside_unit_interval,
    training_leaks,
)
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.portfolio.pipeline import RiskLimits

RIVAL = {
    "contest": "a",
    "source": "sample",
    "first_session": dt.date(2010, 1, 4),
    "last_session": dt.date(2012, 1, 3),
    "n_sessions": 504,
}


def board(*changes: dict) -> pl.DataFrame:
    kinds = {"rank": pl.Int32, "sharpe": pl.Float64}
    return pl.DataFrame([{**RIVAL, **change} for change in changes], schema_overrides=kinds)


def test_outside_unit_interval_ignores_nulls():
    rows = pl.DataFrame({"p": [0.0, 1.0, None, 1.01, 0.5], "q": [0.5, 0.5, 0.5, 0.5, -0.1]})
    assert outside_unit_interval(rows, ["p", "q"]).rows() == [(1.01, 0.5), (0.5, -0.1)]


def test_inconsistent_entrants_is_empty_for_consistent_contest():
    ranked = board(
        {"rank": 1, "sharpe": 1.0},
        {"rank": 2, "sharpe": 0.0},
        {"rank": 2, "sharpe": 0.0},
        {"rank": 4, "sharpe": -1.0},
        {"rank": None, "sharpe": None},
        {"contest": "b", "n_sessions": 10, "rank": 1, "sharpe": 5.0},
        {"contest": None, "source": None},
        {"contest": None},
    )
    assert inconsistent_entrants(ranked).is_empty()


@pytest.mark.parametrize(
    "change",
    [
        {"contest": None},
        {"source": "landing"},
        {"n_sessions": 503},
        {"last_session": dt.date(2012, 1, 4)},
        {"rank": 1},
        {"rank": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_entrants_of_another_window_or_out_of_order_are_found(change):
    mixed = board({"rank": 1, "sharpe": 1.0}, {"rank": 2, "sharpe": 0.5, **change})
    assert not inconsistent_entrants(mixed).is_empty()


DAYS = NEW_YORK.sessions(dt.date(2010, 1, 4), dt.date(2010, 12, 31)).tolist()


def leaks(train, tested, purge_size=6, embargo_size=21):
    """Folds that leak, of one tested from a session to another and trained on stretches."""
    training = pl.DataFrame(
        [(0, DAYS[first], DAYS[last]) for first, last in train], ["fold", "train_first", "train_last"], orient="row"
    )
    days = DAYS[tested[0] : tested[1] + 1]
    curves = pl.DataFrame({"fold": [0] * len(days), "session": days})
    found = training_leaks(training, curves, purge_size, embargo_size, NEW_YORK)
    return [(DAYS.index(row["train_first"]), DAYS.index(row["train_last"])) for row in found.iter_rows(named=True)]


def test_training_that_keeps_purge_and_embargo_does_not_leak():
    assert leaks([(0, 93), (172, 200)], (100, 150)) == []
    assert leaks([(0, 99), (151, 200)], (100, 150), 0, 0) == []


@pytest.mark.parametrize(
    "stretch", [(0, 94), (0, 99), (0, 100), (90, 160), (110, 120), (150, 160), (151, 200), (171, 200)], ids=str
)
def test_training_within_or_too_close_to_a_test_leaks_on_either_side(stretch):
    assert leaks([(0, 50), stretch, (180, 200)], (100, 150)) == [stretch]


def test_sessions_are_counted_by_the_exchange_and_not_by_the_calendar():
    over_the_weekend = DAYS.index(dt.date(2010, 1, 8))
    assert leaks([(0, over_the_weekend)], (over_the_weekend + 2, 60), 2, 0) == [(0, over_the_weekend)]
    assert leaks([(0, over_the_weekend)], (over_the_weekend + 3, 60), 2, 0) == []


def test_a_fold_without_tested_sessions_is_a_leak():
    training = pl.DataFrame({"fold": [1], "train_first": DAYS[:1], "train_last": DAYS[9:10]})
    assert len(training_leaks(training, pl.DataFrame({"fold": [0], "session": DAYS[20:21]}), 0, 0, NEW_YORK)) == 1


@pytest.mark.parametrize(
    ("weights", "limits", "n_found"),
    [
        ([0.5, 0.5, 0.0], {}, 0),
        ([0.5, 0.4, 0.0], {}, 1),
        ([1.2, -0.2, 0.0], {}, 1),
        ([1.0, 0.5, -0.5], {}, 1),
        ([1.2, -0.2, 0.0], {"max_short": 0.2, "max_gross": 1.5}, 0),
        ([1.0, 0.5, -0.5], {"max_gross": 1.5}, 0),
        ([1.2, -0.4, 0.2], {"max_short": 0.4, "max_gross": 1.5}, 1),  # a gross of 1.6
    ],
)
def test_weights_beyond_the_limits_of_debt_and_short_positions_are_found(weights, limits, n_found):
    row = {"policy": "a", "kind": "policy", "step": 0, "session": dt.date(2020, 1, 2)}
    logs = pl.DataFrame([{**row, "target_weights": weights, "executed_weights": weights}])
    assert len(off_portfolio(logs, RiskLimits(**limits))) == n_found
