"""Picture of a search session."""

from collections.abc import Iterable

from nvtrader_pipelines.figures.canvas import Picture
from nvtrader_pipelines.figures.search_figure import SearchPoint, search_figure
from nvtrader_pipelines.research.journal import Line, TrialJudged, TrialRerun
from nvtrader_pipelines.research.recorded_session import recorded_state, recorded_states
from nvtrader_pipelines.research.sentences import format_trials
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.research.verdict import SearchState, Standing

_NOTE = (
    "A diamond was above the luck bar and the kept trial of its time, also with two fresh seeds; it is drawn at the "
    "mean of its three seeds. The luck bar is drawn by the error of the best trial so far."
)


def draw_session(session: Session, lines: Iterable[Line]) -> Picture:
    """Draw the Sharpe ratios of a session whose base is judged.

    Raises:
        ValueError: if the base is not judged.
    """
    journal = list(lines)
    state = recorded_state(journal)
    if state is None:
        raise ValueError("a picture of a session needs the result of its base; wait for the first line of its journal")
    points = search_points(journal)
    title = f"Sharpe ratio of {format_trials(len(points))}, session {session.session_id}"
    return search_figure(points, state.base.sharpe, title, _NOTE)


def search_points(lines: Iterable[Line]) -> list[SearchPoint]:
    """Points of the trials of a journal, in order."""
    after: list[SearchState] = []  # state after each trial and its reruns
    for line, state in recorded_states(lines):
        if isinstance(line, TrialRerun) and after:
            after[-1] = state
        elif isinstance(line, TrialJudged) and line.status != "known":
            after.append(state)
    trials = list(after[-1].trials.values()) if after else []
    return [
        SearchPoint(
            number,
            state.sharpe_of(trial),
            is_kept=trial.standing == Standing.KEPT,
            luck=state.luck_sharpe,
            kept=state.sharpe_of(state.kept),
        )
        for number, (trial, state) in enumerate(zip(trials, after, strict=True), start=1)
    ]
