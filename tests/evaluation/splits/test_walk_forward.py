from datetime import date
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.evaluation.splits import MIN_TEST_SESSIONS, WalkForward
from tests.evaluation.splits.calendars import folds_or_reject, walk_forwards, weekdays


@given(splitter=walk_forwards(), n_sessions=st.integers(2500, 6000))
def test_test_windows_follow_one_another_to_the_end_of_the_data(splitter, n_sessions):
    folds = folds_or_reject(splitter, weekdays(n_sessions=n_sessions))
    assert [fold.index for fold in folds] == list(range(len(folds)))
    for before, after in pairwise(folds):
        assert after.test_first == before.test_last + 1
    assert folds[-1].test_last == n_sessions - 1
    assert all(fold.test_last - fold.test_first + 1 >= min(MIN_TEST_SESSIONS, 18) for fold in folds)


@given(splitter=walk_forwards(), n_sessions=st.integers(2500, 6000))
def test_a_longer_history_changes_no_earlier_fold_but_the_last_two(splitter, n_sessions):
    sessions = weekdays(n_sessions=n_sessions + 400)
    short, long = (folds_or_reject(splitter, sessions[:end]) for end in (n_sessions, n_sessions + 400))
    assert long[: len(short) - 1] == short[:-1]


def test_the_default_trains_nine_years_and_tests_three():
    sessions = weekdays()
    first = WalkForward().split(sessions)[0]
    assert sessions[first.train_first] == np.datetime64("1991-01-02")
    assert sessions[first.test_first] == np.datetime64("2000-01-03")
    assert sessions[first.test_last] == np.datetime64("2003-01-01")


def test_a_chosen_first_test_starts_the_first_fold_there():
    sessions = weekdays()
    folds = WalkForward(first_test=date(2001, 1, 1)).split(sessions)
    assert [str(sessions[fold.test_first]) for fold in folds[:4]] == [
        "2001-01-01",
        "2004-01-01",
        "2007-01-01",
        "2010-01-01",
    ]
    assert sessions[folds[1].train_first] == np.datetime64("1995-01-02")


def test_anchored_windows_all_start_at_the_first_session():
    folds = WalkForward(train_months=None, first_test=date(2001, 1, 1)).split(weekdays())
    assert {fold.train_first for fold in folds} == {0}


def test_a_last_test_window_of_a_few_sessions_joins_the_one_before():
    sessions = weekdays()
    end = int(np.searchsorted(sessions, np.datetime64("2004-01-01"))) + 5
    folds = WalkForward(first_test=date(2001, 1, 1)).split(sessions[:end])
    assert [fold.test_last for fold in folds] == [end - 1]


def test_a_last_test_window_may_be_shorter():
    sessions = weekdays()
    end = int(np.searchsorted(sessions, np.datetime64("2004-01-01"))) + 60
    folds = WalkForward(first_test=date(2001, 1, 1)).split(sessions[:end])
    assert folds[1].test_last - folds[1].test_first + 1 == 60


@pytest.mark.parametrize(
    ("splitter", "n_sessions"),
    [
        (WalkForward(), 500),
        (WalkForward(first_test=date(1994, 1, 1)), 8000),
        (WalkForward(train_months=1, purge_size=40, first_test=date(2001, 1, 1)), 8000),
    ],
    ids=["short history", "training before the data", "long purge"],
)
def test_a_fold_that_does_not_fit_is_refused(splitter, n_sessions):
    with pytest.raises(ValueError):
        splitter.split(weekdays(n_sessions=n_sessions))


def test_an_anchored_splitter_needs_a_first_test():
    with pytest.raises(ValidationError):
        WalkForward(train_months=None)
