"""Policies of an earlier run on other sessions: replayed over a window, or walked forward over the sessions since."""

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
    """A fold by its sessions, which stay the same when the market grows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    index: int
    train_first: date
    train_last: date
    test_first: date
    test_last: date
    train: tuple[Dates, ...] = Field(default=(), exclude_if=operator.not_)  # its windows, if several
    test: tuple[Dates, ...] = Field(default=(), exclude_if=operator.not_)

    @property
    def in_days(self) -> Fold:
        """The fold with the numbers of days for sessions."""
        train = self.train or ((self.train_first, self.train_last),)
        test = self.test or ((self.test_first, self.test_last),)
        return Fold.of(self.index, _in_days(train), _in_days(test))


def _in_days(windows: Sequence[Dates]) -> list[Window]:
    return [(first.toordinal(), last.toordinal()) for first, last in windows]


def fold_dates(plan: RunPlan) -> tuple[FoldDates, ...]:
    """The folds of a run by their sessions; a forward run without a session yet tests from the last one known."""
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


def recorded_as(folds: Sequence[FoldDates]) -> dict[int, tuple[int, ...]]:
    """Fold to the numbers under which the sessions it tests are recorded; its own, unless folds share them."""
    in_days = [fold.in_days for fold in folds]
    blocks = {(block.test_first, block.test_last): block.index for block in BacktestPaths.of(in_days).blocks}
    return {fold.index: tuple(blocks[window] for window in fold.test) for fold in in_days}


@dataclass(frozen=True)
class Parent:
    """The run whose policies are used again."""

    run_id: str
    folds: Sequence[FoldDates]

    @property
    def window(self) -> tuple[date, date]:
        """Its own test window."""
        return min(fold.test_first for fold in self.folds), max(fold.test_last for fold in self.folds)

    @property
    def validation_only(self) -> bool:
        """Whether some of its policies were trained on what came after their tests."""
        return any(fold.in_days.trains_on_the_future for fold in self.folds)

    def require_no_foresight(self) -> None:
        """Refuse a run whose policies were trained on what came after their tests.

        Raises:
            ValueError: if it is one.
        """
        for fold in (each.in_days for each in self.folds):
            if fold.trains_on_the_future:
                tested, trained = (date.fromordinal(day) for day in (fold.test_first, fold.train_last))
                raise ValueError(
                    f"policies are used again on sessions after their training, but fold {fold.index} of run "
                    f"{self.run_id} was tested from {tested} and trained to {trained}: it is for validation only; "
                    "train the experiment with the walk_forward or the holdout splitter"
                )


def replay_plan(
    spec: ExperimentSpec, panel: MarketPanel, parent: Parent, window: tuple[date, date] | None = None
) -> RunPlan:
    """The parent's policies over a window of sessions (both included), or over its own test window.

    Each session is decided by the policy of the latest fold whose test window has begun, so none is judged on what it
    was trained on.

    Raises:
        ValueError: if the window begins before the first test window or holds no session, or policies were trained on
            what came after their tests.
    """
    parent.require_no_foresight()
    first, last = window or parent.window
    begin = parent.window[0]
    if first < begin:
        raise ValueError(
            f"a replay begins at the first session its policies were not trained on, {begin}, or later, but the window "
            f"asked for begins on {first}; ask for a later one"
        )
    start = panel.index_of(np.datetime64(first))
    end = int(np.searchsorted(panel.sessions, np.datetime64(last), side="right")) - 1
    if not 1 <= start <= end:
        raise ValueError(
            f"the window {first} to {last} holds no session that can be replayed: the market runs from "
            f"{panel.sessions[0]} to {panel.sessions[-1]}; ask for another window"
        )
    folds = _folds_between(panel, parent.folds, start, end)
    return RunPlan(spec, panel, panel_digest(panel), folds, "replay", parent.run_id)


def forward_plan(spec: ExperimentSpec, panel: MarketPanel, parent: Parent) -> RunPlan:
    """The parent's last policies over every session since its test window, from cash.

    Raises:
        ValueError: if the market ends before the parent's last test session, or policies were trained on what came
            after their tests.
    """
    parent.require_no_foresight()
    tested_to, last = parent.window[1], len(panel.sessions) - 1
    start = int(np.searchsorted(panel.sessions, np.datetime64(tested_to), side="right"))
    if panel.sessions[last] < np.datetime64(tested_to) or not start:
        raise ValueError(
            f"a forward run continues after {tested_to}, the last session of its parent's tests, but the market ends "
            f"on {panel.sessions[last]}; deliver the bars since"
        )
    folds = (_fold(panel, parent.folds[-1], start, last),)
    return RunPlan(spec, panel, panel_digest(panel), folds, "forward", parent.run_id)


def _folds_between(panel: MarketPanel, folds: Sequence[FoldDates], start: int, end: int) -> tuple[Fold, ...]:
    """The folds in force from session `start` to `end`, each until the next one's test window begins."""
    starts = [max(start, panel.index_of(np.datetime64(fold.test_first))) for fold in folds]
    lasts = [min(end, following - 1) for following in (*starts[1:], end + 1)]
    spans = zip(folds, starts, lasts, strict=True)
    return tuple(_fold(panel, fold, first, last) for fold, first, last in spans if first <= last)


def _fold(panel: MarketPanel, fold: FoldDates, first: int, last: int) -> Fold:
    train_first, train_last = (panel.index_of(np.datetime64(day)) for day in (fold.train_first, fold.train_last))
    return Fold(fold.index, train_first, train_last, first, last)
