from datetime import date

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.evaluation.splits import Holdout
from tests.evaluation.splits.calendars import weekdays


def test_a_holdout_is_one_fold_from_the_first_session_to_the_last():
    sessions = weekdays(n_sessions=6000)
    (fold,) = Holdout(test_first=date(2010, 1, 1)).split(sessions)
    assert (fold.index, fold.train_first, fold.test_last) == (0, 0, 5999)
    assert sessions[fold.test_first] == np.datetime64("2010-01-01")


def test_a_holdout_keeps_to_the_days_that_were_chosen():
    sessions = weekdays()
    (fold,) = Holdout(
        train_first=date(2001, 6, 2), test_first=date(2004, 1, 3), test_last=date(2005, 1, 1), purge_size=3
    ).split(sessions)
    days = [str(sessions[i]) for i in (fold.train_first, fold.train_last, fold.test_first, fold.test_last)]
    assert days == ["2001-06-04", "2003-12-30", "2004-01-05", "2004-12-31"]


@pytest.mark.parametrize(
    ("splitter", "why"),
    [
        (Holdout(train_first=date(1985, 1, 1)), "the sessions run from 1991-01-02"),
        (Holdout(test_last=date(2055, 1, 1)), "set a later train_first or an earlier test_last"),
        (Holdout(test_first=date(2050, 1, 1)), "tests 0 sessions from 2050-01-01"),
        (Holdout(test_last=date(2010, 1, 12)), "tests 8 sessions from 2010-01-01 on, but a test needs 21"),
        (Holdout(test_first=date(1991, 1, 3)), "no training session left before a purge of 6"),
        (Holdout(train_first=date(2009, 12, 30)), "no training session left before a purge of 6"),
    ],
)
def test_a_holdout_outside_the_data_is_refused_in_a_sentence(splitter, why):
    with pytest.raises(ValueError, match=why):
        splitter.split(weekdays())


@pytest.mark.parametrize(
    ("days", "why"),
    [
        ({"train_first": date(2010, 1, 1)}, "set an earlier train_first"),
        ({"test_last": date(2010, 1, 1)}, "set a later test_last"),
    ],
)
def test_the_windows_of_a_holdout_are_in_order(days, why):
    with pytest.raises(ValidationError, match=why):
        Holdout(**days)
