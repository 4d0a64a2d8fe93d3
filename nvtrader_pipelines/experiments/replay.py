"""Replays and forward runs: policies of an earlier run on other sessions."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from nvtrader_pipelines.evaluation.splits import BacktestPaths, Fold, Window
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest

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
        for fold in (each.in_days for each in self.folds):
            if fold.trains_on_the_future:
                tested, trained = (date.fromordinal(day) for day in (fold.test_first, fold.train_last))
                raise ValueError(
                    f"policies can only be reused on sessions after their training, but fold {fold.index} of run "
                    f"{self.run_id} was tested from {tested} and trained to {trained} (validation only); "
                    "train the experiment with the walk_forward or the holdout splitter"
                )


def replay_plan(
    spec: ExperimentSpec, panel: MarketPanel, parent: Parent, window: tuple[date, date] | None = None
) -> RunPlan:
    """Plan the parent's policies over a window of sessions (inclusive), by default its own test window.

    The latest fold whose test window has begun decides, so no policy is evaluated on training sessions.

    Raises:
        ValueError: if the window begins before the first test window or has no session, or policies were trained on
            sessions after their tests.
    """
    parent.require_no_foresight()
    first, last = window or parent.window
    begin = parent.window[0]
    if first < begin:
        raise ValueError(
            f"a replay must begin on {begin}, the first out-of-sample session, or later, but the window begins on "
            f"{first}; choose a later one"
        )
    start = panel.index_of(np.datetime64(first))
    end = int(np.searchsorted(panel.sessions, np.datetime64(last), side="right")) - 1
    if not 1 <= start <= end:
        raise ValueError(
            f"the window {first} to {last} has no session that can be replayed: the market runs from "
            f"{panel.sessions[0]} to {panel.sessions[-1]}; choose another window"
        )
    folds = _folds_between(panel, parent.folds, start, end)
    return RunPlan(spec, panel, panel_digest(panel), folds, "replay", parent.run_id)


def forward_plan(spec: ExperimentSpec, panel: MarketPanel, parent: Parent) -> RunPlan:
    """Plan the parent's last policies over every session since its test window, from cash.

    Raises:
        ValueError: if the market ends before the parent's last test session, or policies were trained on
            sessions after their tests.
    """
    parent.require_no_foresight()
    tested_to, last = parent.window[1], len(panel.sessions) - 1
    start = int(np.searchsorted(panel.sessions, np.datetime64(tested_to), side="right"))
    if panel.sessions[last] < np.datetime64(tested_to) or not start:
        raise ValueError(
            f"a forward run continues after {tested_to}, the last test session of its parent, but the market ends on "
            f"{panel.sessions[last]}; deliver the bars since"
        )
    folds = (_fold(panel, parent.folds[-1], start, last),)
    return RunPlan(spec, panel, panel_digest(panel), folds, "forward", parent.run_id)


def _folds_between(panel: MarketPanel, folds: Sequence[FoldDates], start: int, end: int) -> tuple[Fold, ...]:
    """Folds in force from session `start` to `end`, each until the next test window begins."""
    starts = [max(start, panel.index_of(np.datetime64(fold.test_first))) for fold in folds]
    lasts = [min(end, following - 1) for following in (*starts[1:], end + 1)]
    spans = zip(folds, starts, lasts, strict=True)
    return tuple(_fold(panel, fold, first, last) for fold, first, last in spans if first <= last)


def _fold(panel: MarketPanel, fold: FoldDates, first: int, last: int) -> Fold:
    train_first, train_last = (panel.index_of(np.datetime64(day)) for day in (fold.train_first, fold.train_last))
    return Fold(fold.index, train_first, train_last, first, last)
