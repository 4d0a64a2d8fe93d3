"""Notes on a search for the language model that proposes: facts of its journal, without times or ids."""

import itertools
from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Annotated

import numpy as np
from pydantic import AfterValidator

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.research.journal import (
    BaseJudged,
    Knobs,
    Line,
    ModelAsked,
    TrialJudged,
    TrialRerun,
    changed_values,
)
from nvtrader_pipelines.research.knobs import Knob
from nvtrader_pipelines.research.proposers import spaced_values
from nvtrader_pipelines.research.recorded_session import TrialView, best_view, recorded_state, trial_views
from nvtrader_pipelines.research.sentences import format_rerun
from nvtrader_pipelines.research.study import Outlook
from nvtrader_pipelines.research.verdict import Standing

N_RECENT, N_BEST, N_NEAR_MISSES, N_ANSWERS, N_REASONS = 20, 5, 5, 10, 5  # entries, at most
N_RANGES = 3  # equal parts of a knob's bounds
MIN_TRIALS = 3  # in a range, before it counts as a dead end
PLATEAU = 10  # trials since the best one, from which on they are noted
Figure = Annotated[float, AfterValidator(lambda value: float(f"{value:.4g}"))]
Values = dict[str, int | Figure]  # by knob


class KnobNote(Document):
    """Knob with its bounds."""

    name: str
    low: int | Figure
    high: int | Figure
    is_whole: bool
    is_log: bool
    base: int | Figure


class TrialNote(Document):
    """Trial so far, over all its seeds."""

    trial: int
    status: str
    changed: Values  # from the base
    sharpe: Figure | None  # on validation
    lead: Figure | None  # over the base
    t: Figure | None  # lead in standard errors
    novelty: Figure  # distance to the nearest earlier trial or the base, of at most 1


class NearMiss(Document):
    """Trial above the luck bar that was not kept after its reruns."""

    trial: int
    changed: Values
    standing: str
    why: str


class DeadEnd(Document):
    """Range of a knob in which no trial led the base."""

    knob: str
    low: Figure
    high: Figure
    n_trials: int


class OptimizerNote(Document):
    """Next proposal of the optimizer, with center and spread of what it would draw."""

    proposal: Values
    center: Values
    spread: Values  # a factor for a knob on a log scale


class AnswerNote(Document):
    """Earlier answer of the model, and its result or why it was not taken."""

    outcome: str
    changed: Values
    reason: str
    expected: Figure | None
    sharpe: Figure | None  # that came
    message: str


class SearchNotes(Document):
    """Facts that a language model proposes by."""

    goal: str
    base_sharpe: Figure
    knobs: tuple[KnobNote, ...]
    recent: tuple[TrialNote, ...]
    best: tuple[TrialNote, ...]  # highest t first
    near_misses: tuple[NearMiss, ...]
    dead_ends: tuple[DeadEnd, ...]
    without_result: dict[str, int]  # trials by reason
    n_trials_since_best: int | None  # a plateau; null below 10
    optimizer: OptimizerNote
    answers: tuple[AnswerNote, ...]


def search_notes(
    goal: str, knobs: Sequence[Knob], lines: Sequence[Line], proposed: Knobs, outlook: Outlook
) -> SearchNotes:
    """Write the notes from a journal and the optimizer's next proposal.

    Raises:
        ValueError: if the base is not judged.
    """
    base = next((line for line in lines if isinstance(line, BaseJudged)), None)
    state = recorded_state(lines)
    if base is None or state is None:
        raise ValueError("notes on a search need the result of its base")
    trials = trial_views(lines)
    notes = _trial_notes(knobs, base.knobs, trials)
    scored = sorted((note for note in notes if note.t is not None), key=lambda note: -(note.t or 0.0))
    reasons = Counter(trial.line.message for trial in trials if trial.line.status in ("infeasible", "failed"))
    return SearchNotes(
        goal=goal,
        base_sharpe=state.base.sharpe,
        knobs=tuple(KnobNote.of(knob, base=base.knobs[knob.name]) for knob in knobs),
        recent=tuple(notes[-N_RECENT:]),
        best=tuple(scored[:N_BEST]),
        near_misses=tuple(_near_misses(trials, lines)),
        dead_ends=tuple(end for knob in knobs for end in _dead_ends(knob, trials)),
        without_result=dict(reasons.most_common(N_REASONS)),
        n_trials_since_best=_plateau(trials),
        optimizer=OptimizerNote(proposal=proposed, center=outlook.center, spread=outlook.spread),
        answers=tuple(_answers(base.knobs, lines)),
    )


def _trial_notes(knobs: Sequence[Knob], base: Knobs, trials: Sequence[TrialView]) -> list[TrialNote]:
    settings = (base, *(trial.knobs for trial in trials))
    places = np.array([[_place(knob, values[knob.name]) for knob in knobs] for values in settings])
    return [
        TrialNote(
            trial=i,
            status=trial.line.status,
            changed=trial.changed,
            sharpe=trial.sharpe,
            lead=trial.lead and trial.lead.difference,
            t=trial.lead and trial.lead.t,
            novelty=float(np.sqrt(((places[:i] - places[i]) ** 2).mean(axis=1)).min()),
        )
        for i, trial in enumerate(trials, start=1)
    ]


def _place(knob: Knob, value: float) -> float:
    value = knob.clip(value)
    if knob.is_log:
        return log(value / knob.low) / log(knob.high / knob.low)
    return (value - knob.low) / (knob.high - knob.low)


def _near_misses(trials: Sequence[TrialView], lines: Sequence[Line]) -> list[NearMiss]:
    reruns = [line for line in lines if isinstance(line, TrialRerun) and line.standing != Standing.KEPT]
    return [
        NearMiss(
            trial=rerun.trial,
            changed=trials[rerun.trial - 1].changed,
            standing=rerun.standing,
            why=format_rerun(rerun),
        )
        for rerun in reruns[-N_NEAR_MISSES:]
    ]


def _dead_ends(knob: Knob, trials: Sequence[TrialView]) -> list[DeadEnd]:
    """Ranges of a knob with three trials or more that ran, none of which leads the base."""
    n_trials, has_lead = [0] * N_RANGES, [False] * N_RANGES
    for trial in trials:
        if trial.line.status in ("judged", "pruned"):
            part = min(int(_place(knob, trial.knobs[knob.name]) * N_RANGES), N_RANGES - 1)
            n_trials[part] += 1
            has_lead[part] |= trial.lead is not None and trial.lead.difference > 0.0
    edges = itertools.pairwise(spaced_values(knob, N_RANGES + 1))
    return [
        DeadEnd(knob=knob.name, low=low, high=high, n_trials=n)
        for (low, high), n, is_open in zip(edges, n_trials, has_lead, strict=True)
        if n >= MIN_TRIALS and not is_open
    ]


def _plateau(trials: Sequence[TrialView]) -> int | None:
    best = best_view(trials)
    return len(trials) - best.number if best and len(trials) - best.number >= PLATEAU else None


def _answers(base: Knobs, lines: Sequence[Line]) -> list[AnswerNote]:
    """Answers that came in time: equal searches have equal notes."""
    sharpes = {line.proposal: line.sharpe for line in lines if isinstance(line, TrialJudged)}
    answers = [line for line in lines if isinstance(line, ModelAsked) and line.outcome not in ("late", "not asked")]
    return [
        AnswerNote.of(
            line,
            changed=changed_values(line.proposed, base),
            expected=line.expects,
            sharpe=sharpes.get(line.proposal) if line.outcome == "proposed" else None,
        )
        for line in answers[-N_ANSWERS:]
    ]
