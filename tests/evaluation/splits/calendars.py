"""Calendars and splitters to try on them."""

from datetime import date

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.splits import CombinatorialPurged, Holdout, PurgedKFold, WalkForward


def weekdays(first="1991-01-02", n_sessions=8000):
    return np.busday_offset(first, np.arange(n_sessions), roll="forward").astype("datetime64[D]")


def walk_forwards():
    """Rolling and anchored ones."""
    return st.builds(
        WalkForward,
        test_months=st.integers(1, 40),
        train_months=st.integers(2, 48) | st.none(),
        first_test=st.dates(date(1995, 1, 10), date(2000, 1, 1)),
        purge_size=st.integers(0, 30),
    )


def holdouts():
    return st.builds(
        Holdout,
        train_first=st.dates(date(1991, 1, 2), date(1995, 1, 10)) | st.none(),
        test_first=st.dates(date(1995, 1, 11), date(2000, 1, 1)),
        test_last=st.dates(date(2000, 3, 1), date(2000, 6, 1)) | st.none(),
        purge_size=st.integers(0, 30),
    )


@st.composite
def combinatorials(draw):
    n_folds = draw(st.integers(3, 7))
    sizes = {"purge_size": draw(st.integers(0, 60)), "embargo_size": draw(st.integers(0, 250))}
    return CombinatorialPurged(n_folds=n_folds, n_test_folds=draw(st.integers(2, n_folds - 1)), **sizes)


def purged_kfolds():
    return st.builds(
        PurgedKFold, n_folds=st.integers(2, 12), purge_size=st.integers(0, 60), embargo_size=st.integers(0, 250)
    )


def splitters():
    """Any member of the family."""
    return walk_forwards() | holdouts() | combinatorials() | purged_kfolds()


def folds_or_reject(splitter, sessions):
    try:
        return splitter.split(sessions)
    except ValueError:
        assume(condition=False)


def days(windows):
    """Every session of some windows."""
    return [day for first, last in windows for day in range(first, last + 1)]
