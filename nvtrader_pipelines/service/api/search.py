"""Routes `/api/nemorl-autoresearch` and `/api/continuous-rl`: search sessions and readings of charts."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field

from nvtrader_pipelines.components.text import Text
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.recorded_session import read_session, request_stop
from nvtrader_pipelines.research.session_spec import BUDGET, GOAL, MAX_TRIALS, MAX_WORKERS
from nvtrader_pipelines.research.space import TIMESTEPS
from nvtrader_pipelines.service.api.body import Body, Symbols
from nvtrader_pipelines.service.api.chart_reading import ChartReading, ChartRequest, read_chart
from nvtrader_pipelines.service.api.context import Context, Shared, router
from nvtrader_pipelines.service.api.launches import Launched, launch_search
from nvtrader_pipelines.service.api.problems import conflict, not_found
from nvtrader_pipelines.service.documents.search_facts import (
    JournalRow,
    SessionDocument,
    SessionSummary,
    journal_rows,
    list_sessions,
    session_document,
)

routes = router("autoresearch")
PREFIX = "/api/nemorl-autoresearch"
SessionId = Annotated[str, Path(max_length=100, description="id of a session, or its beginning")]


class SearchRequest(Body):
    """Settings of a search session."""

    goal: Text = GOAL  # one line in your words, kept in the journal
    symbols: Symbols = ()  # none: all of the source
    budget: Annotated[int, Field(ge=1, le=MAX_TRIALS)] = BUDGET  # trials
    total_timesteps: Annotated[int, Field(ge=1, le=10**9)] = TIMESTEPS  # of a trial; cufolio_only does not train
    eval_mode: SearchMode = SearchMode.PPO_ONLY  # groups of knobs to vary
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1  # of the proposals
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] = 2  # processes
    source: Annotated[str, Field(max_length=32)] = "sample"  # as data/market.yaml names it


class StopRequest(Body):
    """Session to stop."""

    session_id: Annotated[str, Field(max_length=100)] | None = None  # or its beginning; null: the running one


class Stopping(Body):
    """Session that ends after its current trials."""

    session_id: str


@routes.post(f"{PREFIX}/start", status_code=202)
def start(shared: Shared, body: SearchRequest) -> Launched:
    """Start a search session."""
    return launch_search(shared, body.model_dump(mode="json"))


@routes.post(f"{PREFIX}/stop", status_code=202)
def stop(shared: Shared, body: StopRequest | None = None) -> Stopping:
    """End a running session after its current trials."""
    with not_found():
        folder = shared.store.searches.find(body.session_id if body else None)
    with conflict():
        request_stop(folder)
    return Stopping(session_id=folder.session_id)


@routes.get(f"{PREFIX}/status", response_model=SessionDocument | None)
def status(shared: Shared) -> Any:
    """State of the running session, else of the newest; null where there is none."""

    def read() -> object:
        return session_document(shared.store) if shared.store.searches.folders() else None

    return shared.answer("search/status", read, shared.searches, shared.experiments, of=_running(shared))


@routes.get(f"{PREFIX}/journal/{{sid}}", response_model=list[JournalRow])
def journal(shared: Shared, sid: SessionId) -> Any:
    """Proposals of a session with their results, reruns and the verdict."""
    with not_found():
        folder = shared.store.searches.find(sid)

    def read() -> object:
        return journal_rows(read_session(folder))

    return shared.answer("search/journal", read, (folder.path,), of=(folder.session_id,))


@routes.get(f"{PREFIX}/sessions", response_model=list[SessionSummary])
def sessions(shared: Shared) -> Any:
    """List sessions, newest first; those that cannot be read are left out."""
    return shared.answer(
        "search/sessions", lambda: list_sessions(shared.store)[0], shared.searches, of=_running(shared)
    )


@routes.post("/api/continuous-rl/interpret-chart")
def interpret_chart(shared: Shared, body: ChartRequest) -> ChartReading:
    """Read a chart in four to six bullets, by the vision model if one is configured, else from its data."""
    return read_chart(body, shared.store)


def _running(shared: Context) -> tuple[str, ...]:
    """Sessions in progress; no file changes when the process of one is killed."""
    return tuple(folder.session_id for folder in shared.store.searches.folders() if folder.is_running)
