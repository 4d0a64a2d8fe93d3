"""Connections whose headers do not arrive, against a real server."""

import socket
import time
from threading import Thread

import pytest
import uvicorn

from nvtrader_pipelines.service.api import server as server_module
from nvtrader_pipelines.service.api.server import PromptRequests
from tests.service.api.servers import free_port
from tests.service.api.test_access import echo

WHOLE = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"


@pytest.fixture
def connect(monkeypatch):
    """Connect to a server that waits a fifth of a second for headers."""
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 0.2)
    port = free_port()
    config = uvicorn.Config(echo, port=port, http=PromptRequests, log_level="critical", timeout_keep_alive=60)
    server = uvicorn.Server(config)
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield lambda: socket.create_connection(("127.0.0.1", port), timeout=10)
    server.should_exit = server.force_exit = True
    thread.join()


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_connection_with_half_sent_headers_is_closed(connect, sent):
    with connect() as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_half_sent_second_request_is_closed(connect):
    with connect() as connection:
        connection.sendall(WHOLE + b"{}")
        assert connection.recv(1000).endswith(b"2")
        connection.sendall(b"GET / HT")
        assert connection.recv(100) == b""


def test_body_may_come_later_and_idle_connection_stays(connect):
    with connect() as connection:
        connection.sendall(WHOLE)
        time.sleep(0.4)
        connection.sendall(b"{}")
        assert connection.recv(1000).endswith(b"2")
        time.sleep(0.4)
        connection.sendall(WHOLE + b"{}")
        assert connection.recv(1000).endswith(b"2")
