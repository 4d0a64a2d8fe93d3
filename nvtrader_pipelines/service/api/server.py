"""Web server of the service, which ends at once when it is asked to."""

import gc
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from importlib import import_module
from threading import Thread
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nvtrader_pipelines.service.api.access import Access, Guard
from nvtrader_pipelines.service.api.app import create_app
from nvtrader_pipelines.service.tools.registry import Permission
from nvtrader_pipelines.service.tools.toolbox import READING
from nvtrader_pipelines.storage.store import Store

HEADER_SECONDS = 10.0  # for all headers of a request
OBJECTS_BETWEEN_COLLECTIONS = 50_000  # of the garbage collector; by default it takes as long as reading an account does
SLOW_IMPORTS = ("scipy.stats", "statsmodels.stats.sandwich_covariance")  # of intervals; the first request would wait


class PromptRequests(HttpToolsProtocol):
    """Connection that is closed if the headers of a request are not all there in time; uvicorn waits for ever."""

    _deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        """Stop the wait once a request is whole, and begin another with the first bytes of the next one."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and self._deadline:
            self._deadline.cancel()
            self._deadline = None
        elif self._deadline is None and self.cycle is before and self.cycle.response_complete:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait."""
        if self._deadline:
            self._deadline.cancel()
        super().connection_lost(exc)


class Server(uvicorn.Server):
    """Server that ends open streams before it ends itself; uvicorn waits for them."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None], on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams, self._on_start = end_streams, on_start

    async def startup(self, sockets: list | None = None) -> None:
        """Open the port, and say so."""
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """End the streams, then the server; a second signal ends it at once."""
        self._end_streams()
        self.force_exit, self.should_exit = self.should_exit, True


def _warm_up() -> None:
    """Import what is slow to import, and spare the garbage collector what stays for good."""
    for name in SLOW_IMPORTS:
        import_module(name)
    gc.freeze()


def serve(
    store: Store,
    access: Access,
    by: str,
    on_start: Callable[[], None],
    permissions: frozenset[Permission] = READING,
) -> None:
    """Serve a home until a signal ends it.

    Args:
        store: store of the home.
        access: who may use the service.
        by: name that decisions are recorded under.
        on_start: called once the port is open.
        permissions: of the tools of assistants.

    Raises:
        OSError: if the port is taken.
    """
    app = create_app(store, access, by, permissions)
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    Thread(target=_warm_up, daemon=True).start()
    config = uvicorn.Config(
        Guard(app, access),
        access.host,
        access.port,
        http=PromptRequests,
        log_level="warning",
        access_log=False,
        server_header=False,
    )

    def end_streams() -> None:
        app.state.streams.end()
        app.state.page.end()

    Server(config, end_streams, on_start).run()
