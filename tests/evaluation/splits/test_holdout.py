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
    "splitter",
    [
        Holdout(train_first=date(1985, 1, 1)),
        Holdout(test_last=date(2055, 1, 1)),
        Holdout(test_first=date(2050, 1, 1)),
        Holdout(test_last=date(2010, 1, 12)),
        Holdout(test_first=date(1991, 1, 3)),
        Holdout(train_first=date(2009, 12, 30)),
    ],
)
def test_a_holdout_outside_the_data_is_refused(splitter):
    with pytest.raises(ValueError):
        splitter.split(weekdays())


@pytest.mark.parametrize("days", [{"train_first": date(2010, 1, 1)}, {"test_last": date(2010, 1, 1)}])
def test_the_windows_of_a_holdout_are_in_order(days):
    with pytest.raises(ValidationError):
        Holdout(**days)
