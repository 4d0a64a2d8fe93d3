"""Application of the service: routes, their documentation, and the guard in front of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi_offline import FastAPIOffline
from starlette.responses import RedirectResponse, Response

from nvtrader_pipelines.service.api import desk, nemorl, rl, search
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.guard import Access
from nvtrader_pipelines.service.api.problems import Problem, handle_problems, problem_response
from nvtrader_pipelines.storage.store import Store

PROBLEMS = {
    status: {"model": Problem, "description": description}
    for status, description in {
        401: "The token is missing or wrong.",
        403: "Another page sent the request.",
        404: "There is no such thing.",
        409: "The state forbids it.",
        413: "The body is too large.",
        421: "The host is another one.",
        422: "A value is not valid.",
        503: "A file of the home cannot be read or written.",
    }.items()
}
DESCRIPTION = """Use cases of the command line over HTTP.

A write needs the token that the start prints, as `Authorization: Bearer TOKEN`; reads need it, too, where the service
is bound to another address than 127.0.0.1. Errors are problem documents (RFC 9457)."""


def create_app(store: Store, access: Access, by: str) -> FastAPI:
    """Create the application of a home.

    Args:
        store: store of the home.
        access: who may use it.
        by: name that decisions are recorded under.
    """
    app = FastAPIOffline(
        title="nvtrader",
        version=version("nvtrader-pipelines"),
        description=DESCRIPTION,
        redoc_url=None,
        lifespan=_lifespan,
        responses=PROBLEMS,
    )
    app.state.context = Context(store, by)
    handle_problems(app)
    for routes in (nemorl.router, search.router, rl.router, desk.router):
        app.include_router(routes)

    @app.get("/", include_in_schema=False)
    def enter(request: Request, token: Annotated[str, Query()] = "") -> Response:
        """Let the browser in that opens the link of the start."""
        if token and not access.holds(token):
            return problem_response(401, "the token of the link is wrong; open the link that the start printed last")
        if not (token or access.is_loopback or access.holds(request.cookies.get(access.cookie, ""))):
            return problem_response(401, "the token is missing; open the link that the start printed")
        answer = RedirectResponse("/docs", 303)
        if token:
            answer.set_cookie(access.cookie, token, httponly=True, samesite="strict")
        return answer

    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
