"""Folds of a run by dates, as its manifest records them, and the run as a parent of others."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from nvtrader_pipelines.evaluation.splits import BacktestPaths, Fold, Window

if TYPE_CHECKING:  # takes half a second to import, and a list of runs reads manifests only
    from nvtrader_pipelines.experiments.plan import RunPlan

Dates = tuple[date, date]  # first and last session, inclusive


class FoldDates(BaseModel):
    """Fold by dates, which stay valid when the market grows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    index: int
    train_first: date
    train_last: date
    test_first: date
    test_last: date
    train: tuple[Dates, ...] = Field(default=(), exclude_if=operator.not_)  # windows, if several
    test: tuple[Dates, ...] = Field(default=(), exclude_if=operator.not_)

    @property
    def in_days(self) -> Fold:
        """Fold with ordinal days in place of session indices."""
        train = self.train or ((self.train_first, self.train_last),)
        test = self.test or ((self.test_first, self.test_last),)
        return Fold.of(self.index, _in_days(train), _in_days(test))


def _in_days(windows: Sequence[Dates]) -> list[Window]:
    return [(first.toordinal(), last.toordinal()) for first, last in windows]


def fold_dates(plan: RunPlan) -> tuple[FoldDates, ...]:
    """Folds of a run by dates; a forward run without sessions yet tests from the last known one."""
    sessions, last = plan.panel.sessions, len(plan.panel.sessions) - 1

    def dates(windows: Sequence[Window]) -> tuple[Dates, ...]:
        several = windows if len(windows) > 1 else ()
        return tuple((sessions[start].item(), sessions[end].item()) for start, end in several)

    return tuple(
        FoldDates(
            index=fold.index,
            train_first=sessions[fold.train_first].item(),
            train_last=sessions[fold.train_last].item(),
            test_first=sessions[min(fold.test_first, last)].item(),
            test_last=sessions[fold.test_last].item(),
            train=dates(fold.train),
            test=dates(fold.test),
        )
        for fold in plan.folds
    )


def recorded_fold_numbers(folds: Sequence[FoldDates]) -> dict[int, tuple[int, ...]]:
    """Fold numbers in the record, by fold; block numbers where folds share tested sessions."""
    in_days = [fold.in_days for fold in folds]
    blocks = {(block.test_first, block.test_last): block.index for block in BacktestPaths.of(in_days).blocks}
    return {fold.index: tuple(blocks[window] for window in fold.test) for fold in in_days}


@dataclass(frozen=True)
class Parent:
    """Run whose policies are reused."""

    run_id: str
    folds: Sequence[FoldDates]

    @property
    def window(self) -> tuple[date, date]:
        """Test window of the parent."""
        return min(fold.test_first for fold in self.folds), max(fold.test_last for fold in self.folds)

    @property
    def validation_only(self) -> bool:
        """Whether some policies were trained on sessions after their tests."""
        return any(fold.in_days.trains_on_the_future for fold in self.folds)

    def require_no_foresight(self) -> None:
        """Check that no policy was trained on sessions after its tests.

        Raises:
            ValueError: if one was.
        """
        for fold in (block.in_days for block in self.folds):
            if fold.trains_on_the_future:
                tested, trained = (date.fromordinal(day) for day in (fold.test_first, fold.train_last))
                raise ValueError(
                    f"policies can only be reused on sessions after their training, but fold {fold.index} of run "
                    f"{self.run_id} was tested from {tested} and trained to {trained} (validation only); "
                    "train the experiment with the walk_forward or the holdout splitter"
                )
