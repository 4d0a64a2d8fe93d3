import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.invariants import inconsistent_entrants
from nvtrader_pipelines.scoreboard.ranking import rank_entrants
from nvtrader_pipelines.storage.tables import SCOREBOARD, SCORECARDS

FIRST = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)


def cards(scores, contest="c", day=0, **more):
    """Rows of one scoring, from Sharpe ratios by entrant."""
    rows = [
        {
            "contest": contest,
            "entrant": name,
            "source": "sample",
            "sharpe": sharpe,
            "digest": f"{name}|{contest}|{sharpe}",
            "judged_at": FIRST + dt.timedelta(days=day),
            "note": "it was refused" if sharpe is None else None,
            **more,
        }
        for name, sharpe in scores.items()
    ]
    return pl.DataFrame(rows, schema=SCORECARDS.schema)


def latest(*rows):
    """Digests by entrant."""
    return dict(pl.concat(rows).select("entrant", "digest").iter_rows())


def ranks(board):
    return dict(board.select("entrant", "rank").iter_rows())


def test_zero_sharpe_ranks_between_gains_and_losses():
    now = cards({"loss": -0.3, "cash": 0.0, "gain": 0.2})
    board = rank_entrants(now, latest(now))
    assert board["entrant"].to_list() == ["gain", "cash", "loss"]
    assert ranks(board) == {"gain": 1, "cash": 2, "loss": 3}
    assert board.schema == SCOREBOARD.schema


def test_refused_entrant_comes_last_without_rank():
    now = cards({"none": None, "loss": -2.0})
    board = rank_entrants(now, latest(now))
    assert board.select("entrant", "rank", "note").rows() == [("loss", 1, None), ("none", None, "it was refused")]


def test_equal_sharpe_ratios_share_a_rank():
    now = cards({"a": 0.5, "b": 0.5, "c": 0.1})
    assert ranks(rank_entrants(now, latest(now))) == {"a": 1, "b": 1, "c": 3}


def test_ranks_are_per_contest():
    here, there = cards({"a": 0.5, "b": 0.1}), cards({"c": 9.0, "d": 0.3}, contest="other", source="landing")
    history = pl.concat([here, there])
    board = rank_entrants(history, latest(history))
    assert ranks(board) == {"a": 1, "b": 2, "c": 1, "d": 2}
    assert inconsistent_entrants(board).is_empty()


def test_previous_rank_is_that_of_the_update_before():
    before = cards({"a": 0.5, "b": 0.1})
    now = cards({"b": 0.9}, day=1)
    board = rank_entrants(pl.concat([before, now]), latest(before.filter(entrant="a"), now))
    found = board.select("entrant", "rank", "previous_rank", "previous_sharpe").rows()
    assert found == [("b", 1, 2, 0.1), ("a", 2, 1, 0.5)]


def test_new_entrant_has_no_previous_rank():
    before, now = cards({"a": 0.5, "b": 0.1}), cards({"new": 0.7}, day=1)
    board = rank_entrants(pl.concat([before, now]), latest(before, now))
    found = board.select("entrant", "rank", "previous_rank").rows()
    assert found == [("new", 1, None), ("a", 2, 1), ("b", 3, 2)]


def test_other_contest_gives_no_previous_rank():
    before, now = cards({"a": 0.5}), cards({"a": 0.4}, contest="longer", day=1)
    board = rank_entrants(pl.concat([before, now]), latest(now))
    assert board.select("contest", "rank", "previous_rank", "previous_sharpe").row(0) == ("longer", 1, None, None)


def test_entrant_that_left_is_not_on_the_board():
    before = cards({"a": 0.5, "gone": 0.9})
    board = rank_entrants(before, latest(before.filter(entrant="a")))
    assert ranks(board) == {"a": 1}


def test_entrant_that_left_changes_no_previous_rank():
    before, now = cards({"a": 0.5, "gone": 0.9, "b": 0.1}), cards({"a": 0.4}, day=1)
    board = rank_entrants(pl.concat([before, now]), latest(before.filter(entrant="b"), now))
    found = board.select("entrant", "rank", "previous_rank").rows()
    assert found == [("a", 1, 1), ("b", 2, 2)]


def test_repeated_result_counts_at_its_latest_time():
    first, second, third = (cards({"a": score}, day=day) for day, score in enumerate((0.5, 0.2, 0.5)))
    board = rank_entrants(pl.concat([first, second, third]), latest(third))
    assert board.select("sharpe", "previous_sharpe", "judged_at").row(0) == (0.5, 0.2, FIRST + dt.timedelta(days=2))


@pytest.mark.parametrize("empty", [pl.DataFrame(schema=SCORECARDS.schema)])
def test_board_without_entrants_is_empty(empty):
    assert rank_entrants(empty, {}).is_empty()
