"""Check of a journal: its order, its numbers, and its figures against the stored returns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.research.journal import (
    BaseJudged,
    Line,
    LookOpened,
    ModelAsked,
    SessionClosed,
    TrialJudged,
    TrialRerun,
    returns_name,
)

TOLERANCE = 1e-6  # of a Sharpe ratio: processors add up in different orders
ReadReturns = Callable[[str], NDArray[np.float64] | None]  # (n_seeds, n) by name; None if there are none
Problems = Iterator[tuple[int, str]]  # line, from 1, with what must hold and what was found


def find_problems(lines: Sequence[Line], read_returns: ReadReturns) -> Problems:
    """Find the lines that no session wrote so: doubled, missing, moved or altered ones."""
    yield from _misplaced(lines)
    yield from _misnumbered(lines)
    yield from _without_trial(lines)
    if lines and isinstance(lines[0], BaseJudged):
        yield from _differing(lines, lines[0], read_returns)


def _misplaced(lines: Sequence[Line]) -> Problems:
    for number, line in enumerate(lines, start=1):
        if isinstance(line, BaseJudged) != (number == 1):
            yield number, f"the first line and no other must be the base, but this is a line {line.event!r}"
        is_verdict = isinstance(line, SessionClosed)
        if is_verdict and number < len(lines):
            yield number, f"a verdict must be the last line, but there are {len(lines)}"
        if not is_verdict and number > 1 and line.finished_at < lines[number - 2].finished_at:
            yield number, "it must have ended after the line before, but ended earlier"


def _misnumbered(lines: Sequence[Line]) -> Problems:
    """Find proposals, answers, reruns and looks that are there twice, and trials that are not the next one."""
    n_trials, seen = 0, set[tuple[str, object]]()
    for number, line in enumerate(lines, start=1):
        keys = _identities(line)
        if repeated := next((key for key in keys if key in seen), None):
            yield number, f"each {repeated[0]} must be there once, but {repeated[1]} is repeated"
        seen.update(keys)
        if isinstance(line, ModelAsked) and ("proposal", line.proposal) in seen:
            yield number, f"an answer must stand before its proposal, but {line.proposal} is judged already"
        if isinstance(line, TrialJudged) and line.status != "known":
            n_trials += 1
            if line.trial != n_trials:
                yield number, f"the next trial must be number {n_trials}, but is {line.trial}"


def _identities(line: Line) -> list[tuple[str, object]]:
    """Values of a line that no other line may have."""
    if isinstance(line, TrialJudged):
        return [("proposal", line.proposal), *([("configuration", line.spec_hash)] if line.status != "known" else [])]
    if isinstance(line, BaseJudged):
        return [("configuration", line.spec_hash)]
    if isinstance(line, ModelAsked):
        return [("answer to a proposal", line.proposal)]
    if isinstance(line, TrialRerun):
        return [("rerun of a trial", line.trial)]
    return [("look", line.look)] if isinstance(line, LookOpened) else []


def _without_trial(lines: Sequence[Line]) -> Problems:
    """Find lines about a trial that no earlier line has."""
    trials: dict[int | None, str] = {}
    for number, line in enumerate(lines, start=1):
        if isinstance(line, TrialJudged) and line.status != "known":
            trials[line.trial] = line.spec_hash
        elif isinstance(line, TrialJudged | TrialRerun) and line.trial is not None:
            if trials.get(line.trial) != line.spec_hash:
                yield number, f"an earlier line must have trial {line.trial} of its configuration, but none has"
        elif isinstance(line, LookOpened) and line.trial not in trials:
            yield number, f"an earlier line must have trial {line.trial}, but none has"


def _differing(lines: Sequence[Line], base: BaseJudged, read_returns: ReadReturns) -> Problems:
    """Find Sharpe ratios that the stored returns do not give, and leads that Sharpe ratios do not give."""
    base_returns = read_returns("base")
    per_session = 0.0 if base_returns is None else sharpe_ratio(base_returns[0], 1)
    n_periods = round((base.sharpes[0] / per_session) ** 2) if per_session else 0  # sessions a year, a whole number
    for number, result in _results(lines):
        returns = read_returns(result.name) if n_periods else None
        stored = result.sharpes if returns is None else [sharpe_ratio(row, n_periods) for row in returns]
        if not _are_close(result.sharpes, stored):
            yield (
                number,
                f"Sharpe ratios must be {_format(stored)} by the stored returns, but are {_format(result.sharpes)}",
            )
        lead = fmean(result.of_lead) - fmean(base.sharpes)
        if result.lead and not _are_close([result.lead.difference], [lead]):
            yield number, f"the lead must be {_format([lead])} by Sharpe ratios, but is {result.lead.difference}"
    n_trials = sum(isinstance(line, TrialJudged) and line.status != "known" for line in lines)
    if read_returns(returns_name(n_trials + 2)) is not None:  # a killed session has those of one trial without a line
        yield len(lines), f"trial {n_trials + 1} must follow, since returns of trial {n_trials + 2} are stored"


@dataclass(frozen=True)
class _CheckedLine:
    """Figures of a line, and the name of its stored returns."""

    name: str
    sharpes: Sequence[float]
    of_lead: Sequence[float]  # Sharpe ratios whose mean leads the base
    lead: Lead | None = None


def _results(lines: Sequence[Line]) -> Iterator[tuple[int, _CheckedLine]]:
    first: dict[int | None, float] = {}
    for number, line in enumerate(lines, start=1):
        if isinstance(line, BaseJudged):
            yield number, _CheckedLine("base", line.sharpes, line.sharpes)
        elif isinstance(line, TrialJudged) and line.status == "judged" and line.sharpe is not None:
            first[line.trial] = line.sharpe
            yield number, _CheckedLine(returns_name(line.trial), (line.sharpe,), (line.sharpe,), line.lead)
        elif isinstance(line, TrialRerun) and line.sharpes and line.trial in first:
            of_lead = (first[line.trial], *line.sharpes)
            yield number, _CheckedLine(f"{returns_name(line.trial)}-fresh", line.sharpes, of_lead, line.lead)


def _are_close(values: Sequence[float], expected: Sequence[float]) -> bool:
    return len(values) == len(expected) and np.allclose(values, expected, rtol=0.0, atol=TOLERANCE)


def _format(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6f}" for value in values)
