"""Dagster's web server behind a check of who asks: any page in the browser can send requests to 127.0.0.1."""

import re
import sys

import dagster as dg
from dagster_webserver import cli
from dagster_webserver.webserver import DagsterWebserver
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from nvtrader_pipelines.orchestration.instance import fail_lost_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.locks import try_lock

OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")  # any port: the near end of an SSH tunnel may differ
GRAPHQL = "/graphql"
ONLY_UI = "one UI must serve a database, but another machine serves it; open that one, or stop it with --stop there"
POLICY_VIOLATION = 1008  # close code of a websocket


class OwnPageOnly:
    """Middleware that refuses requests for other hosts, and operations that other pages send."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        status, reason = refusal(scope) if scope["type"] in {"http", "websocket"} else (0, "")
        if not status:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(POLICY_VIOLATION, reason)(scope, receive, send)
        else:
            await PlainTextResponse(f"{reason}\n", status)(scope, receive, send)


def refusal(scope: Scope) -> tuple[int, str]:
    """Status and reason for which a request is refused; 0 if it is not.

    Browsers state the host that a page was loaded from, also after another name was pointed at this machine, and its
    origin. Programs state no origin.
    """
    headers = Headers(scope=scope)
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not OWN_HOST.fullmatch(hosts[0]):
        return 421, "the host must be 127.0.0.1 or localhost; open the URL that `nvtrader ui` prints"
    is_read = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
    if is_read and GRAPHQL not in scope["path"]:  # Starlette's routes match before a trailing newline, too
        return 0, ""
    is_own = all(origin == f"http://{hosts[0]}" for origin in headers.getlist("origin"))
    if not is_own or headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        return 403, "the request must come from the page of this UI, but another page sent it"
    if is_read and "text/html" not in headers.get("accept", ""):  # Dagster answers those with a page
        return 405, "GraphQL operations must be sent by POST"
    return 0, ""


def main() -> None:
    """Run the command `dagster-webserver` with the check in front of its application.

    It belongs to the only UI of its home and of its database, so runs of another code server are lost.
    """
    home = Home.find()
    try:
        with try_lock(home, "ui", home.dagster / "web.lock") as held:
            if held is None:
                raise StorageError(ONLY_UI)
            _serve()
    except StorageError as error:
        sys.exit(f"error: {error}")


def _serve() -> None:
    with dg.DagsterInstance.get() as instance:
        fail_lost_runs(instance)
    build_middleware = DagsterWebserver.build_middleware
    DagsterWebserver.build_middleware = lambda self: [Middleware(OwnPageOnly), *build_middleware(self)]
    cli.main()


if __name__ == "__main__":
    main()
