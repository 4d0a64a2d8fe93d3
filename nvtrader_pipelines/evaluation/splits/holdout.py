"""One training window and one test window, by dates."""

from datetime import date
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.splits.fold import HOLIDAYS, MIN_TEST_SESSIONS, Fold, Window


class Holdout(Component):
    """One fold: train before `test_first` less a purge, test from there on.

    A single test window is a single draw of luck; `walk_forward` has several.
    """

    embargo_size: ClassVar[int] = 0  # no training after tests

    kind: Literal["holdout"] = "holdout"
    train_first: date | None = None  # None: the first session
    test_first: date = date(2010, 1, 1)  # first tested day
    test_last: date | None = None  # None: the last session
    purge_size: NonNegativeInt = Field(default=6, description="sessions left out between training and test")

    @property
    def fixed_training_end(self) -> date:
        """Day before which every training ends, however the market grows."""
        return self.test_first

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
        """The one fold of ascending `sessions` (T,).

        Raises:
            ValueError: if the windows lie outside the sessions or are too short.
        """
        days = sessions.astype("datetime64[D]")
        wanted = np.asarray([self.train_first or days[0], self.test_last or days[-1]], dtype="datetime64[D]")
        if wanted[0] + HOLIDAYS < days[0] or wanted[1] > days[-1] + HOLIDAYS:
            raise ValueError(
                f"the holdout trains from {wanted[0]} and tests to {wanted[1]}, but the sessions run from {days[0]} to "
                f"{days[-1]}; set a later train_first or an earlier test_last"
            )
        train_first, test_first = (
            int(np.searchsorted(days, day)) for day in (wanted[0], np.datetime64(self.test_first))
        )
        test_last = int(np.searchsorted(days, wanted[1], side="right")) - 1
        train_last = test_first - self.purge_size - 1
        self._require_sessions((train_first, train_last), (test_first, test_last))
        return [Fold(0, train_first, train_last, test_first, test_last)]

    def _require_sessions(self, train: Window, test: Window) -> None:
        n_test = test[1] - test[0] + 1
        if n_test < MIN_TEST_SESSIONS:
            raise ValueError(
                f"the holdout tests {max(n_test, 0)} sessions from {self.test_first} on, but a test needs "
                f"{MIN_TEST_SESSIONS}; set an earlier test_first or bring a longer history"
            )
        if train[1] < train[0]:
            raise ValueError(
                f"the holdout tested from {self.test_first} has no training session left before a purge of "
                f"{self.purge_size} sessions; set a later test_first or lower purge_size"
            )
