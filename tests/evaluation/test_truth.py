"""Truth checks: what breaks an identity is found, and nothing else."""

import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.truth import outside_unit_interval, unlike_rivals

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


def test_probabilities_below_zero_or_above_one_are_found_and_unknown_ones_are_not():
    rows = pl.DataFrame({"p": [0.0, 1.0, None, 1.01, 0.5], "q": [0.5, 0.5, 0.5, 0.5, -0.1]})
    assert outside_unit_interval(rows, ["p", "q"]).rows() == [(1.01, 0.5), (0.5, -0.1)]


def test_rivals_on_one_window_ranked_by_their_sharpe_ratio_are_like_with_like():
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
    assert unlike_rivals(ranked).is_empty()


@pytest.mark.parametrize(
    "change",
    [{"contest": None}, {"source": "landing"}, {"n_sessions": 503}, {"last_session": dt.date(2012, 1, 4)}, {"rank": 1}, {"rank": None}],
    ids=lambda change: next(iter(change)),
)
def test_rivals_of_another_window_or_out_of_order_are_found(change):
    mixed = board({"rank": 1, "sharpe": 1.0}, {"rank": 2, "sharpe": 0.5, **change})
    assert not unlike_rivals(mixed).is_empty()
