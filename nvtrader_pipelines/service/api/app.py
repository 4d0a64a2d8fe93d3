"""Application of the service: routes, their documentation, and the guard in front of them."""

import asyncio
import logging
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from itertools import chain, repeat
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi_offline import FastAPIOffline
from starlette.responses import RedirectResponse, Response

from nvtrader_pipelines.service.api import chart_reading, desk, lab, nemorl, progress_stream, rl, tools
from nvtrader_pipelines.service.api.access import PAGE_POLICY, Access
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.mount import operation_routes
from nvtrader_pipelines.service.api.page import account_pages, lab_pages
from nvtrader_pipelines.service.api.page import routes as page_routes
from nvtrader_pipelines.service.api.page.live_page import LivePage, PageStream
from nvtrader_pipelines.service.api.problems import MEDIA_TYPE, Problem, handle_problems, problem_response
from nvtrader_pipelines.service.api.progress_stream import Streams
from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.alphas import Alphas
from nvtrader_pipelines.service.operations.bots import Bots
from nvtrader_pipelines.service.operations.corpora import Corpora
from nvtrader_pipelines.service.operations.experiments import Experiments
from nvtrader_pipelines.service.operations.feedback import Feedback
from nvtrader_pipelines.service.operations.guards import Guards
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies
from nvtrader_pipelines.service.operations.runs import Runs
from nvtrader_pipelines.service.operations.scoreboard import Scoreboard
from nvtrader_pipelines.service.operations.searches import Searches
from nvtrader_pipelines.service.operations.workflows import Workflows
from nvtrader_pipelines.service.operations.worlds import Worlds
from nvtrader_pipelines.service.tools.registry import Permission
from nvtrader_pipelines.service.tools.toolbox import READING, Toolbox
from nvtrader_pipelines.storage.store import Store

# in the order in which people meet them
FAMILIES = (
    WholeHome,
    Experiments,
    Alphas,
    Searches,
    Runs,
    Guards,
    Scoreboard,
    Corpora,
    Policies,
    Plans,
    Accounts,
    Bots,
    Feedback,
    Workflows,
    Worlds,
)
LOG = logging.getLogger(__name__)
FIRST_SECONDS = 3.0  # opening Dagster's instance would delay the first answers
CLOSE_SECONDS = 15.0  # a look takes some 0.1 s of CPU time
STATIC = "/static-offline-docs"  # of fastapi_offline
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": description, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
    for status, description in {
        401: "The token is missing or wrong.",
        403: "Another page sent the request.",
        404: "There is no such thing.",
        409: "The state forbids it.",
        400: "The body is no JSON.",
        413: "The body is too large.",
        421: "The host is another one.",
        422: "A value is not valid.",
        503: "A file of the home cannot be read or written.",
    }.items()
}
TAGS = {
    "nemorl": "Manual training, learning curve, ratio curve and readings of charts, as in NVTrader's Continuous RL.",
    "rl": "Experiments, runs, components, progress and the stop of everything, as in AlphaSwarm's RL framework.",
    **{family.command or "home": str(family.__doc__).partition("\n")[0] for family in FAMILIES},
    "tools": "Tools of assistants, as AlphaSwarm has them; `POST /mcp` speaks the Model Context Protocol.",
    "desk": "Ours: environment, decisions on plans, schedules and the kill switch.",
}
DESCRIPTION = """Use cases of the command line over HTTP.

A write needs the token that the start prints, as `Authorization: Bearer TOKEN`; reads need it, too, where the service
is bound to another address than 127.0.0.1. Errors are problem documents (RFC 9457)."""


def create_app(store: Store, access: Access, by: str, permissions: frozenset[Permission] = READING) -> FastAPI:
    """Create the application of a home.

    Args:
        store: store of the home.
        access: who may use it.
        by: name that decisions are recorded under.
        permissions: of the tools of assistants.
    """
    shared = Context(store, by)
    streams, page = Streams(shared), PageStream(LivePage(shared))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watch = asyncio.create_task(close_dead_runs(shared, streams.stop))
        yield
        streams.end()
        page.end()
        await watch

    app = FastAPIOffline(
        title="nvtrader",
        version=version("nvtrader-pipelines"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=PROBLEMS,
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    app.state.context, app.state.streams, app.state.page = shared, streams, page
    app.state.toolbox = Toolbox(shared.opened, permissions)
    app.add_route("/mcp", tools.StreamableHttp(app.state.toolbox), ["POST"], include_in_schema=False)  # pyright: ignore[reportArgumentType] - an ASGI application
    handle_problems(app)
    modules = (nemorl, chart_reading, rl, lab, progress_stream, tools, desk, page_routes, lab_pages, account_pages)
    for routes in (*map(operation_routes, FAMILIES), *(module.routes for module in modules)):
        app.include_router(routes)

    swagger = _page_of_routes()

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        """Show the routes, and let them be tried."""
        return swagger

    @app.get("/", include_in_schema=False)
    def enter(request: Request, token: Annotated[str, Query()] = "") -> Response:
        """Let the browser in that opens the link of the start."""
        if token and not access.holds(token):
            return problem_response(401, "the token of the link is wrong; open the link that the start printed last")
        if not (token or access.is_loopback or access.holds(request.cookies.get(access.cookie, ""))):
            return problem_response(401, "the token is missing; open the link that the start printed")
        answer = RedirectResponse("/continuous-rl.html", 303)
        if token:
            answer.set_cookie(access.cookie, token, httponly=True, samesite="strict")
        return answer

    return app


async def close_dead_runs(shared: Context, stop: asyncio.Event) -> None:
    """Close runs whose process was killed, every few seconds, so that no answer shows them in progress."""
    for seconds in chain([FIRST_SECONDS], repeat(CLOSE_SECONDS)):
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        if stop.is_set():
            return
        try:
            await asyncio.to_thread(_close, shared)
        except Exception:  # the service goes on without it
            LOG.exception("killed runs cannot be closed")


def _close(shared: Context) -> None:
    shared.job_runs.close_dead()  # opens Dagster's instance the first time, in this thread


def _page_of_routes() -> Response:
    """Page by which a browser shows and tries the routes."""
    swagger = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="nvtrader: routes",
        swagger_js_url=f"{STATIC}/swagger-ui-bundle.js",
        swagger_css_url=f"{STATIC}/swagger-ui.css",
        swagger_favicon_url=f"{STATIC}/favicon.png",
    )
    swagger.headers["content-security-policy"] = f"{PAGE_POLICY}; script-src 'self' {_hashes(bytes(swagger.body))}"
    return swagger


def _hashes(page: bytes) -> str:
    """Hashes of the scripts within a page, by which its policy allows them."""
    scripts = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in scripts)
