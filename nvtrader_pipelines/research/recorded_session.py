"""Search session as its folder records it, for people and programs that read it."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.journal import (
    BaseJudged,
    Knobs,
    Line,
    SessionClosed,
    TrialJudged,
    TrialRerun,
    changed_values,
    n_changes,
    read_line,
)
from nvtrader_pipelines.research.journal_check import find_problems
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.research.verdict import Reruns, SearchBase, SearchState, SearchTrial, Standing
from nvtrader_pipelines.storage.errors import ConflictError, DamagedFileError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store

WINNER, BEST = "winner", "best"  # ends of the names of experiments that are handed on
LEVEL = 0.025  # of each side of an interval
REMEDY = "restore the session's folder from a backup, or delete it"


@dataclass(frozen=True)
class RecordedSession:
    """Settings and journal of a session."""

    folder: SessionFolder
    session: Session
    lines: tuple[Line, ...]
    has_torn_line: bool  # whether the journal ends in an incomplete line, which is left out


@dataclass(frozen=True)
class TrialView:
    """Trial of a session with the results of all its seeds so far."""

    number: int  # in the session, from 1
    line: TrialJudged  # of the first seed
    rerun: TrialRerun | None
    base: BaseJudged
    trial: SearchTrial
    after: SearchState  # after the first seed
    is_best: bool  # at the end of the journal

    @property
    def lead(self) -> Lead | None:
        """Lead over the base; None if a seed has no result."""
        return self.trial.current_lead

    @property
    def sharpe(self) -> float | None:
        """Annual net Sharpe ratio on validation; of the first seed where a fresh one has no result."""
        return self.after.sharpe_of(self.trial) if self.lead else self.line.sharpe

    @property
    def lead_interval(self) -> tuple[float, float] | tuple[None, None]:
        """95 % interval of the lead."""
        return self.lead.interval(LEVEL) if self.lead else (None, None)

    @property
    def sharpe_interval(self) -> tuple[float, float] | tuple[None, None]:
        """95 % interval of the lead, as Sharpe ratios."""
        if self.lead is None:
            return None, None
        low, high = self.lead.interval(LEVEL)
        return self.after.base.sharpe + low, self.after.base.sharpe + high

    @property
    def knobs(self) -> Knobs:
        """Effective knobs; those proposed where infeasible."""
        return self.line.knobs or self.line.proposed

    @property
    def changed(self) -> Knobs:
        """Knobs that differ from the base's, with their values."""
        return changed_values(self.knobs, self.base.knobs)


def read_session(folder: SessionFolder) -> RecordedSession:
    """Read the settings and the journal of a session.

    Raises:
        StorageError: if there is no such session, or its settings or a complete line of its journal cannot be read, or
            the lines are not as a session wrote them.
    """
    note_read(folder.settings)
    try:
        session = Session.model_validate_json(folder.settings.read_bytes())
    except FileNotFoundError:
        raise StorageError(
            f"there is no search session {folder.session_id!r}; `nvtrader research sessions` lists them"
        ) from None
    except ValidationError as error:
        raise DamagedFileError(folder.settings, f"is no session: {explain(error, Session)}", REMEDY) from error
    if session.session_id != folder.session_id:
        problem = f"must have the id {folder.session_id}, the name of its folder, but has {session.session_id}"
        raise DamagedFileError(folder.settings, problem, REMEDY)
    texts = folder.read_lines()
    n_bytes = sum(len(text) + 1 for text in texts)
    has_torn_line = folder.journal.exists() and folder.journal.stat().st_size > n_bytes
    lines = tuple(_read_line(folder, number, text) for number, text in enumerate(texts, start=1))
    for number, problem in find_problems(lines, folder.find_returns):
        raise DamagedFileError(folder.journal, f"is not as a session wrote it: in line {number} {problem}", REMEDY)
    return RecordedSession(folder, session, lines, has_torn_line)


def is_closed(lines: Sequence[Line]) -> bool:
    """Whether a journal ends with the verdict."""
    return bool(lines) and isinstance(lines[-1], SessionClosed)


def handed_on(home: Home, session_id: str) -> Path | None:
    """File of the experiment that a session has handed on to trading; None if there is none."""
    note_read(home.experiments)
    paths = (home.experiments / f"{session_id}-{kind}.yaml" for kind in (WINNER, BEST))
    return next((path for path in paths if path.exists()), None)


def find_damaged_sessions(store: Store) -> Iterator[StorageError]:
    """Find the sessions whose settings or journal cannot be read, or are not as a session wrote them."""
    for folder in store.searches.folders():
        try:
            read_session(folder)
        except StorageError as error:
            yield error


def _read_line(folder: SessionFolder, number: int, text: bytes) -> Line:
    try:
        return read_line(text)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise DamagedFileError(folder.journal, f"has an unreadable line {number}: {reason}", REMEDY) from error


def request_stop(folder: SessionFolder) -> None:
    """Ask the process that runs a session to end it after its current trials.

    Raises:
        ConflictError: if no process runs it.
    """
    if not folder.is_running:
        raise ConflictError(
            f"a session must be running to be stopped, but no process runs {folder.session_id}; see "
            f"`nvtrader research status {folder.session_id}`"
        )
    folder.stop_request.touch()


def recorded_states(lines: Iterable[Line]) -> Iterator[tuple[Line, SearchState]]:
    """Yield each line from the base on with the state after it, by the decisions that the journal records."""
    state: SearchState | None = None
    base_knobs: Knobs = {}
    for line in lines:
        if isinstance(line, BaseJudged):
            base_knobs, state = line.knobs, SearchState(SearchBase(line.spec_hash, line.sharpes))
        elif state and isinstance(line, TrialJudged) and line.status != "known":
            state = _with_trial(state, line, base_knobs)
        elif state and isinstance(line, TrialRerun):
            trial = replace(
                state.trials[line.spec_hash], reruns=Reruns(line.sharpes, line.lead), standing=line.standing
            )
            state = replace(
                state,
                trials={**state.trials, line.spec_hash: trial},
                kept=trial if line.standing == Standing.KEPT else state.kept,
            )
        if state:
            yield line, state


def _with_trial(state: SearchState, line: TrialJudged, base_knobs: Knobs) -> SearchState:
    """Add a trial, and as many configurations of other sessions as its line counts beside those of this one."""
    trial = SearchTrial(line.spec_hash, n_changes(line.knobs, base_knobs), line.lead, standing=line.standing)
    trials = {**state.trials, line.spec_hash: trial}
    n_earlier = line.n_configurations - len(trials)
    is_same = n_earlier == len(state.earlier)
    earlier = state.earlier if is_same else frozenset(f"earlier {i}" for i in range(n_earlier))
    return replace(state, trials=trials, earlier=earlier)


def recorded_state(lines: Iterable[Line]) -> SearchState | None:
    """State at the end of a journal; None before the base is judged."""
    last = deque(recorded_states(lines), maxlen=1)
    return last[0][1] if last else None


def trial_views(lines: Iterable[Line]) -> list[TrialView]:
    """Trials of a journal in order, without known proposals."""
    states = list(recorded_states(lines))
    reruns = {line.trial: line for line, _ in states if isinstance(line, TrialRerun)}
    judged = [(line, state) for line, state in states if isinstance(line, TrialJudged) and line.status != "known"]
    if not judged:
        return []
    base, last = next(line for line, _ in states if isinstance(line, BaseJudged)), states[-1][1]
    best = last.best
    return [
        TrialView(number, line, reruns.get(number), base, trial, after, is_best=trial is best)
        for number, ((line, after), trial) in enumerate(zip(judged, last.trials.values(), strict=True), start=1)
    ]


def best_view(trials: Iterable[TrialView]) -> TrialView | None:
    """Best trial; None without a result."""
    return next((trial for trial in trials if trial.is_best), None)
