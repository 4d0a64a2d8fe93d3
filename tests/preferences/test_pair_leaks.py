import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.preferences.pair_leaks import (
    age_of_labels,
    duplicate_pairs,
    leaking_pairs,
    unbalanced_candidates,
)
from tests.preferences.test_pairs import PANEL, WINDOW, pairs_of

TESTS = {3: [(PANEL.sessions[WINDOW[1] + 1].item(), PANEL.sessions[-1].item())]}


@pytest.fixture(scope="module")
def pairs():
    return pairs_of()


def test_pairs_as_they_are_made_do_not_leak(pairs):
    assert leaking_pairs(pairs, TESTS).is_empty()


def test_planted_overlap_with_the_holdout_is_found(pairs):
    train = pairs.filter(part="train").sort("session")
    before = train.filter(pl.col("session") < pairs.filter(holdout=True)["session"].min()).tail(1)
    planted = before.with_columns(pl.col("outcome_session") + dt.timedelta(days=60))
    (row,) = leaking_pairs(pl.concat([pairs, planted]), TESTS).iter_rows(named=True)
    assert (row["pair_id"], row["reason"]) == (before["pair_id"][0], "reaches into the hold-out")
    renamed = pairs.filter(part="stop").head(1).with_columns(part=pl.lit("train"))
    assert leaking_pairs(renamed, TESTS)["reason"].to_list() == ["reaches into the hold-out"]


def test_planted_overlap_with_a_test_is_found(pairs):
    last = pairs.sort("session").tail(1)
    tests = {3: [(last["outcome_session"][0], dt.date(2100, 1, 1))]}
    assert last["pair_id"][0] in leaking_pairs(pairs, tests)["pair_id"]
    assert leaking_pairs(pairs, {4: tests[3]}).is_empty()


def test_duplicates_and_candidates_without_a_chance_are_named(pairs):
    assert duplicate_pairs(pairs).is_empty()
    twice = pl.concat([pairs, pairs.head(2)])
    assert duplicate_pairs(twice)["len"].to_list() == [2, 2]
    assert unbalanced_candidates(pairs, "tiny").is_empty()
    always = pairs.with_columns(chosen=pl.lit("tiny"), rejected=pl.lit("equal_weight"))
    assert unbalanced_candidates(always, "tiny").rows() == [("equal_weight", len(pairs), 1.0)]


def test_age_is_that_of_the_newest_decision_of_a_person(pairs):
    assert age_of_labels(pairs, dt.date(2020, 1, 1)) is None
    people = pairs.with_columns(source=pl.lit("person"))
    newest = people["session"].max()
    assert age_of_labels(people, newest + dt.timedelta(days=9)) == 9
