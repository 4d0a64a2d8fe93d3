"""Routes of the page: its document, its files, and what changes on it."""

import gzip
import json
from collections.abc import AsyncIterator
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from nvtrader_pipelines.desk.account_access import account_names
from nvtrader_pipelines.policies.agents import PpoAgent
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.model_turns import open_model
from nvtrader_pipelines.research.search_settings import LaunchSettings
from nvtrader_pipelines.research.space import search_space
from nvtrader_pipelines.service.api.context import Shared, router
from nvtrader_pipelines.service.api.page.content import render
from nvtrader_pipelines.service.api.page.live_page import Changes, LivePage, PageStream
from nvtrader_pipelines.service.documents.space_facts import SpaceDocument, space_document
from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.errors import NotFoundError

routes = router("page")
STATIC = Path(__file__).with_name("static")
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'"
)
FIRST_SECONDS = 0.25  # that the first page after a start waits for its content
FOREVER = "public, max-age=31536000, immutable"  # of files whose name has their version
PLOTLY = f"plotly-{version('plotly')}.min.js"
SCOPES = {SearchMode.PPO_ONLY: "PPO only", SearchMode.CUFOLIO_ONLY: "cuFOLIO only", SearchMode.UNIFIED: "Unified"}
AFTER = Query(max_length=40, description="version that the page has; empty: none")


def _stream(request: Request) -> PageStream:
    return request.app.state.page


def _page(request: Request) -> LivePage:
    return request.app.state.page.page


Live = Annotated[LivePage, Depends(_page)]


@routes.get("/continuous-rl.html", include_in_schema=False)
def show_page(shared: Shared, live: Live) -> Response:
    """Show the page."""
    live.first_look(FIRST_SECONDS)
    changes = live.changes()
    page = render(
        "page",
        **dict(changes),
        rows=json.loads(changes.model_dump_json(include={"series"}))["series"],  # NaN becomes null
        accounts=[name for name in account_names(shared.home) if name.isprintable()],
        sources=[*filter(None, changes.values.get("sources", "").split(","))] or ["sample"],
        scopes=SCOPES,
        spaces={mode: _space(mode) for mode in SCOPES},
        search=LaunchSettings.model_json_schema()["properties"],
        model_problem=open_model(shared.home)[1],
        training_timesteps=PpoAgent().total_timesteps,
        release=version("nvtrader-pipelines"),
        plotly=PLOTLY,
        ui=running_url(shared.home.dagster),
    )
    return Response(page, media_type="text/html", headers={"content-security-policy": POLICY})


@cache
def _space(mode: SearchMode) -> SpaceDocument:
    return space_document(search_space(mode))


@routes.get("/page/{name}", include_in_schema=False)
def show_file(name: str) -> Response:
    """Send a file of the page."""
    if name == PLOTLY:
        headers = {"content-encoding": "gzip", "vary": "accept-encoding", "cache-control": FOREVER}
        return Response(_plotly(), media_type="text/javascript", headers=headers)
    path = STATIC / name
    if path.suffix not in TYPES or path not in set(STATIC.iterdir()):
        raise NotFoundError(f"the page has no file {name!r}")
    return Response(path.read_bytes(), media_type=TYPES[path.suffix], headers={"cache-control": "no-cache"})


@cache
def _plotly() -> bytes:
    """Plotly's script from the installed package, compressed once: 4.8 MB become 1.5."""
    return gzip.compress((files("plotly") / "package_data" / "plotly.min.js").read_bytes(), 6, mtime=0)


@routes.get("/api/continuous-rl/changes", include_in_schema=False)
def changes(live: Live, after: Annotated[str, AFTER] = "") -> Changes:
    """What changed on the page after a version."""
    live.refresh()
    live.refresh_schedule()
    return live.changes(after)


@routes.get("/api/continuous-rl/stream", response_class=EventSourceResponse, include_in_schema=False)
async def stream(
    page: Annotated[PageStream, Depends(_stream)],
    after: Annotated[str, AFTER] = "",
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow what changes on the page; `Last-Event-ID` resumes after a version."""
    async for change in page.follow(last_event_id or after):
        yield ServerSentEvent(raw_data=change.model_dump_json(), id=change.version, event="changes")
