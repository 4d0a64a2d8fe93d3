"""Search session as its folder records it, for people and programs that read it."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.research.journal import (
    BaseJudged,
    Knobs,
    Line,
    SessionClosed,
    TrialJudged,
    TrialRerun,
    n_changes,
    read_line,
)
from nvtrader_pipelines.research.journal_check import find_problems
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.research.verdict import Reruns, SearchBase, SearchState, SearchTrial, Standing
from nvtrader_pipelines.storage.errors import ConflictError, DamagedFileError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store

WINNER, BEST = "winner", "best"  # ends of the names of experiments that are handed on
REMEDY = "restore the session's folder from a backup, or delete it"


@dataclass(frozen=True)
class RecordedSession:
    """Settings and journal of a session."""

    folder: SessionFolder
    session: Session
    lines: tuple[Line, ...]
    has_torn_line: bool  # whether the journal ends in an incomplete line, which is left out


def read_session(folder: SessionFolder) -> RecordedSession:
    """Read the settings and the journal of a session.

    Raises:
        StorageError: if there is no such session, or its settings or a complete line of its journal cannot be read, or
            the lines are not as a session wrote them.
    """
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
