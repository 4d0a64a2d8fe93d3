"""Walk-forward splits: consecutive test windows, each after its own training window."""

from datetime import date
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.splits.fold import HOLIDAYS, MIN_TEST_SESSIONS, Fold


def _months_after(day: np.datetime64, n_months: int) -> np.datetime64:
    """Shift a day by whole months (backwards if negative)."""
    month = day.astype("datetime64[M]")
    return (month + np.timedelta64(n_months, "M")).astype("datetime64[D]") + (day - month.astype("datetime64[D]"))


class WalkForward(Component):
    """Consecutive test windows of whole months, each after its own training window and a purge.

    The last test window ends with the data and may be shorter; one of fewer than 21 sessions joins the
    window before it.
    """

    embargo_size: ClassVar[int] = 0  # no training after tests
    test_last: ClassVar[None] = None  # the last session

    kind: Literal["walk_forward"] = "walk_forward"
    aliases: ClassVar[tuple[str, ...]] = ("walk_forward_rolling",)
    test_months: PositiveInt = 36
    train_months: PositiveInt | None = 108  # None: anchored, every window starts at the first session
    first_test: date | None = None  # None: `train_months` after the first session
    purge_size: NonNegativeInt = Field(default=6, description="sessions left out between training and test")

    @model_validator(mode="after")
    def _require_start_if_anchored(self) -> Self:
        if self.train_months is None and self.first_test is None:
            raise ValueError(
                "an anchored walk_forward (train_months: null) needs to know where testing starts; set first_test"
            )
        return self

    def split(self, sessions: NDArray[np.datetime64]) -> list[Fold]:
        """Folds of ascending `sessions` (T,), in time order.

        Raises:
            ValueError: if no fold fits, or the first training window starts before the data.
        """
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
        """Build a fold whose training window ends a purge before the test window."""
        train_start = days[0] if self.train_months is None else _months_after(start, -self.train_months)
        if train_start + HOLIDAYS < days[0]:
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
