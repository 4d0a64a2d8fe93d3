"""Replays and forward runs: policies of an earlier run on other sessions."""

from collections.abc import Sequence
from datetime import date

import numpy as np

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.recorded_folds import FoldDates, Parent
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest


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
