"""Routes of tools: one call with JSON arguments, and the Model Context Protocol over streamable HTTP."""

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from anyio.to_thread import run_sync
from fastapi import Body, Path, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nvtrader_pipelines.service.api.answers import answer_with
from nvtrader_pipelines.service.api.context import router
from nvtrader_pipelines.service.tools.toolbox import Toolbox, open_server

if TYPE_CHECKING:
    from mcp.server import Server

routes = router("tools", "/mcp/data/tools")


@routes.post("/{tool}/invoke", response_model=dict[str, Any])
def invoke(
    request: Request,
    tool: Annotated[str, Path(max_length=128, description="Name of the tool.")],
    arguments: Annotated[dict[str, Any], Body(description="Arguments by name.")],
) -> Response:
    """Call a tool, such as `data.rl.describe`, with its arguments as JSON, and answer with its document."""
    return answer_with(request.app.state.toolbox.call(tool, arguments))


class StreamableHttp:
    """ASGI application of the protocol, whose package is imported at the first request."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    @cached_property
    def _server(self) -> "Server":
        return open_server(self._toolbox)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        server = await run_sync(lambda: self._server)
        from nvtrader_pipelines.service.tools.server import answer_http

        await answer_http(server, scope, receive, send)
