"""Policies of an earlier run on other sessions: replayed over a window, or carried on as a paper account."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest


class FoldDates(BaseModel):
    """A fold by its sessions, which stay the same when the market grows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    index: int
    train_first: date
    train_last: date
    test_first: date
    test_last: date


def fold_dates(plan: RunPlan) -> tuple[FoldDates, ...]:
    """The folds of a run by their sessions; a paper run without a session yet tests from the last one known."""
    sessions, last = plan.panel.sessions, len(plan.panel.sessions) - 1
    return tuple(
        FoldDates(
            index=fold.index,
            train_first=sessions[fold.train_first].item(),
            train_last=sessions[fold.train_last].item(),
            test_first=sessions[min(fold.test_first, last)].item(),
            test_last=sessions[fold.test_last].item(),
        )
        for fold in plan.folds
    )


@dataclass(frozen=True)
class Parent:
    """The run whose policies are used again."""

    run_id: str
    folds: Sequence[FoldDates]

    @property
    def window(self) -> tuple[date, date]:
        """Its own test window."""
        return self.folds[0].test_first, self.folds[-1].test_last


def replay_plan(
    spec: ExperimentSpec, panel: MarketPanel, parent: Parent, window: tuple[date, date] | None = None
) -> RunPlan:
    """The parent's policies over a window of sessions (both included), or over its own test window.

    Each session is decided by the policy of the latest fold whose test window has begun, so none is judged on what it
    was trained on.

    Raises:
        ValueError: if the window begins before the first test window, or holds no session.
    """
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


def paper_plan(spec: ExperimentSpec, panel: MarketPanel, parent: Parent) -> RunPlan:
    """The parent's last policies over every session since its test window, from cash.

    Raises:
        ValueError: if the market ends before the parent's last test session.
    """
    tested_to, last = parent.window[1], len(panel.sessions) - 1
    start = int(np.searchsorted(panel.sessions, np.datetime64(tested_to), side="right"))
    if panel.sessions[last] < np.datetime64(tested_to) or not start:
        raise ValueError(
            f"a paper account goes on after {tested_to}, the last session of its parent's tests, but the market ends "
            f"on {panel.sessions[last]}; deliver the bars since"
        )
    folds = (_fold(panel, parent.folds[-1], start, last),)
    return RunPlan(spec, panel, panel_digest(panel), folds, "paper", parent.run_id)


def _folds_between(panel: MarketPanel, folds: Sequence[FoldDates], start: int, end: int) -> tuple[Fold, ...]:
    """The folds in force from session `start` to `end`, each until the next one's test window begins."""
    starts = [max(start, panel.index_of(np.datetime64(fold.test_first))) for fold in folds]
    lasts = [min(end, following - 1) for following in (*starts[1:], end + 1)]
    spans = zip(folds, starts, lasts, strict=True)
    return tuple(_fold(panel, fold, first, last) for fold, first, last in spans if first <= last)


def _fold(panel: MarketPanel, fold: FoldDates, first: int, last: int) -> Fold:
    train_first, train_last = (panel.index_of(np.datetime64(day)) for day in (fold.train_first, fold.train_last))
    return Fold(fold.index, train_first, train_last, first, last)
