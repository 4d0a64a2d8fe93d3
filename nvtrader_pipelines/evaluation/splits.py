"""Splitters: a family of ways to cut a session calendar into folds; train on a window, leave a purge, test after."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from nvtrader_pipelines.components import Component

MIN_TEST_SESSIONS = 21  # a shorter test period says nothing and joins the fold before it
_HOLIDAYS = np.timedelta64(7, "D")  # a market may open this long after a window's first day


@dataclass(frozen=True)
class Fold:
    """One training window and the test window after it; inclusive indices into the sessions."""

    index: int
    train_first: int
    train_last: int
    test_first: int
    test_last: int


def _months_after(day: np.datetime64, n_months: int) -> np.datetime64:
    """The same day of the month, `n_months` later (earlier if negative)."""
    month = day.astype("datetime64[M]")
    return (month + np.timedelta64(n_months, "M")).astype("datetime64[D]") + (day - month.astype("datetime64[D]"))


class WalkForward(Component):
    """Consecutive test windows of whole months, each after its own training window and a purge.

    The last test window ends with the data and may be shorter; one of fewer than 21 sessions joins the
    window before it.
    """

    kind: Literal["walk_forward"] = "walk_forward"
    test_months: PositiveInt = 36
    train_months: PositiveInt | None = 108  # None: anchored, every window starts at the first session
    first_test: date | None = None  # None: `train_months` after the first session
    purge_size: NonNegativeInt = Field(default=6, description="sessions left out between training and test")

    @model_validator(mode="after")
    def _anchored_needs_a_start(self) -> Self:
        if self.train_months is None and self.first_test is None:
            raise ValueError(
                "an anchored walk_forward (train_months: null) does not know where testing starts; set first_test"
            )
        return self

    def split(self, sessions: NDArray[np.datetime64]) -> list[Fold]:
        """The folds, in time order, for ascending `sessions` (T,).

        Raises:
            ValueError: if no fold fits, or the first training window starts before the data.
        """
        if len(sessions) == 0:
            raise ValueError("walk_forward needs sessions, but there are none")
        days = sessions.astype("datetime64[D]")
        starts = self._test_starts(days)
        firsts = [int(np.searchsorted(days, start)) for start in starts]
        lasts = [*(first - 1 for first in firsts[1:]), len(days) - 1]
        return [
            self._fold(index, days, start, (first, last))
            for index, (start, first, last) in enumerate(zip(starts, firsts, lasts, strict=True))
        ]

    def _test_starts(self, days: NDArray[np.datetime64]) -> list[np.datetime64]:
        """First calendar day of each test window that holds enough sessions."""
        start = self._first_test_day(days)
        starts: list[np.datetime64] = []
        while len(days) - np.searchsorted(days, start) >= MIN_TEST_SESSIONS:
            starts.append(start)
            start = _months_after(self._first_test_day(days), self.test_months * len(starts))
        if not starts:
            raise ValueError(
                f"no walk_forward fold fits: testing would start on {start}, but the sessions run from "
                f"{days[0]} to {days[-1]} and a test needs {MIN_TEST_SESSIONS} sessions; "
                "lower train_months, set an earlier first_test or bring a longer history"
            )
        return starts

    def _first_test_day(self, days: NDArray[np.datetime64]) -> np.datetime64:
        if self.first_test is not None:
            return np.datetime64(self.first_test, "D")
        return _months_after(days[0], self.train_months or 0)

    def _fold(self, index: int, days: NDArray[np.datetime64], start: np.datetime64, test: tuple[int, int]) -> Fold:
        """One fold whose training window ends a purge before the test window."""
        train_start = days[0] if self.train_months is None else _months_after(start, -self.train_months)
        if train_start + _HOLIDAYS < days[0]:
            raise ValueError(
                f"the fold tested from {start} trains from {train_start}, but the sessions start on {days[0]}; "
                "set a later first_test or lower train_months"
            )
        train_first, train_last = int(np.searchsorted(days, train_start)), test[0] - self.purge_size - 1
        if train_last < train_first:
            raise ValueError(
                f"the fold tested from {start} has no training session left before a purge of "
                f"{self.purge_size} sessions; set a later first_test or lower purge_size"
            )
        return Fold(index, train_first, train_last, *test)


class Holdout(Component):
    """One fold: everything before `test_first` trains, less a purge, and what follows tests.

    The simplest split there is, and one test window is one draw of luck; `walk_forward` has several.
    """

    kind: Literal["holdout"] = "holdout"
    train_first: date | None = None  # None: the first session
    test_first: date = date(2010, 1, 1)  # first day that is tested
    test_last: date | None = None  # None: the last session
    purge_size: NonNegativeInt = Field(default=6, description="sessions left out between training and test")

    @model_validator(mode="after")
    def _windows_are_in_order(self) -> Self:
        if self.train_first is not None and self.train_first >= self.test_first:
            raise ValueError(
                f"a holdout trains before it tests, but train_first is {self.train_first} and test_first "
                f"{self.test_first}; set an earlier train_first"
            )
        if self.test_last is not None and self.test_last <= self.test_first:
            raise ValueError(
                f"a holdout tests from test_first on, but test_first is {self.test_first} and test_last "
                f"{self.test_last}; set a later test_last"
            )
        return self

    def split(self, sessions: NDArray[np.datetime64]) -> list[Fold]:
        """The one fold for ascending `sessions` (T,).

        Raises:
            ValueError: if the windows do not lie within the sessions, or hold too few.
        """
        if len(sessions) == 0:
            raise ValueError("holdout needs sessions, but there are none")
        days = sessions.astype("datetime64[D]")
        wanted = np.asarray([self.train_first or days[0], self.test_last or days[-1]], dtype="datetime64[D]")
        if wanted[0] + _HOLIDAYS < days[0] or wanted[1] > days[-1] + _HOLIDAYS:
            raise ValueError(
                f"the holdout trains from {wanted[0]} and tests to {wanted[1]}, but the sessions run from {days[0]} to "
                f"{days[-1]}; set a later train_first or an earlier test_last"
            )
        train_first, test_first = (
            int(np.searchsorted(days, day)) for day in (wanted[0], np.datetime64(self.test_first))
        )
        test_last = int(np.searchsorted(days, wanted[1], side="right")) - 1
        return [self._checked(Fold(0, train_first, test_first - self.purge_size - 1, test_first, test_last))]

    def _checked(self, fold: Fold) -> Fold:
        """The fold, if both windows hold enough sessions."""
        n_test = fold.test_last - fold.test_first + 1
        if n_test < MIN_TEST_SESSIONS:
            raise ValueError(
                f"the holdout tests {max(n_test, 0)} sessions from {self.test_first} on, but a test needs "
                f"{MIN_TEST_SESSIONS}; set an earlier test_first or bring a longer history"
            )
        if fold.train_last < fold.train_first:
            raise ValueError(
                f"the holdout tested from {self.test_first} has no training session left before a purge of "
                f"{self.purge_size} sessions; set a later test_first or lower purge_size"
            )
        return fold


Splitter = Annotated[WalkForward | Holdout, Field(discriminator="kind")]
