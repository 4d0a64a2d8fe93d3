import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.invariants import differs_from_rivals
from nvtrader_pipelines.scoreboard.ranking import scoreboard
from nvtrader_pipelines.storage.tables import SCOREBOARD, SCORECARDS

FIRST = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)


def cards(scores, contest="c", day=0, **more):
    """Rows of one judgement: entrant to its Sharpe ratio."""
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


def standing(*rows):
    """Entrant to its digest."""
    return dict(pl.concat(rows).select("entrant", "digest").iter_rows())


def ranks(board):
    return dict(board.select("entrant", "rank").iter_rows())


def test_a_score_of_zero_stands_between_gains_and_losses():
    now = cards({"loss": -0.3, "cash": 0.0, "gain": 0.2})
    board = scoreboard(now, standing(now))
    assert board["entrant"].to_list() == ["gain", "cash", "loss"]
    assert ranks(board) == {"gain": 1, "cash": 2, "loss": 3}
    assert board.schema == SCOREBOARD.schema


def test_who_has_no_score_comes_last_without_a_rank_and_with_the_reason():
    now = cards({"none": None, "loss": -2.0})
    board = scoreboard(now, standing(now))
    assert board.select("entrant", "rank", "note").rows() == [("loss", 1, None), ("none", None, "it was refused")]


def test_equal_scores_share_a_rank():
    now = cards({"a": 0.5, "b": 0.5, "c": 0.1})
    assert ranks(scoreboard(now, standing(now))) == {"a": 1, "b": 1, "c": 3}


def test_nothing_is_ranked_across_contests():
    here, there = cards({"a": 0.5, "b": 0.1}), cards({"c": 9.0, "d": 0.3}, contest="other", source="landing")
    history = pl.concat([here, there])
    board = scoreboard(history, standing(history))
    assert ranks(board) == {"a": 1, "b": 2, "c": 1, "d": 2}
    assert differs_from_rivals(board).is_empty()


def test_where_somebody_stood_is_where_the_judgement_before_put_them():
    before = cards({"a": 0.5, "b": 0.1})
    now = cards({"b": 0.9}, day=1)
    board = scoreboard(pl.concat([before, now]), standing(before.filter(entrant="a"), now))
    found = board.select("entrant", "rank", "previous_rank", "previous_sharpe").rows()
    assert found == [("b", 1, 2, 0.1), ("a", 2, 1, 0.5)]


def test_somebody_new_stood_nowhere_and_moves_the_others():
    before, now = cards({"a": 0.5, "b": 0.1}), cards({"new": 0.7}, day=1)
    board = scoreboard(pl.concat([before, now]), standing(before, now))
    found = board.select("entrant", "rank", "previous_rank").rows()
    assert found == [("new", 1, None), ("a", 2, 1), ("b", 3, 2)]


def test_what_was_earned_in_another_contest_is_no_previous_score():
    before, now = cards({"a": 0.5}), cards({"a": 0.4}, contest="longer", day=1)
    board = scoreboard(pl.concat([before, now]), standing(now))
    assert board.select("contest", "rank", "previous_rank", "previous_sharpe").row(0) == ("longer", 1, None, None)


def test_who_takes_part_no_more_is_not_on_the_board():
    before = cards({"a": 0.5, "gone": 0.9})
    board = scoreboard(before, standing(before.filter(entrant="a")))
    assert ranks(board) == {"a": 1}


def test_who_left_moves_nobody():
    before, now = cards({"a": 0.5, "gone": 0.9, "b": 0.1}), cards({"a": 0.4}, day=1)
    board = scoreboard(pl.concat([before, now]), standing(before.filter(entrant="b"), now))
    found = board.select("entrant", "rank", "previous_rank").rows()
    assert found == [("a", 1, 1), ("b", 2, 2)]


def test_a_result_that_comes_back_is_taken_where_it_was_last_found():
    first, second, third = (cards({"a": score}, day=day) for day, score in enumerate((0.5, 0.2, 0.5)))
    board = scoreboard(pl.concat([first, second, third]), standing(third))
    assert board.select("sharpe", "previous_sharpe", "judged_at").row(0) == (0.5, 0.2, FIRST + dt.timedelta(days=2))


@pytest.mark.parametrize("empty", [pl.DataFrame(schema=SCORECARDS.schema)])
def test_without_anybody_the_board_is_empty(empty):
    assert scoreboard(empty, {}).is_empty()
