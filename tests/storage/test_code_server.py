import fcntl
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from nvtrader_pipelines.storage import code_server
from nvtrader_pipelines.storage.code_server import LOCK, WORKSPACE, unreachable_url

URL = "http://127.0.0.1:3000"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listening Unix socket; nothing accepts its connections yet."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/code")
        listening.listen()
        yield listening


@pytest.fixture
def lock(server, tmp_path) -> Iterator[Path]:
    """The lock and the workspace of a running UI."""
    (tmp_path / WORKSPACE).write_text(f"socket: {server.getsockname()}\n")
    path = tmp_path / LOCK
    path.write_text(f"{URL}\n1\n{server.getsockname()}")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path


def greet(server: socket.socket) -> None:
    with server.accept()[0] as connection:
        connection.sendall(b"settings")


def test_unreachable_url_of_an_answering_code_server_is_empty(server, lock):
    Thread(target=greet, args=[server]).start()
    assert unreachable_url(lock.parent) == ""


def test_unreachable_url_of_a_hung_code_server_is_that_of_its_ui(lock, monkeypatch):
    monkeypatch.setattr(code_server, "ANSWER_SECONDS", 0.1)
    assert unreachable_url(lock.parent) == URL


def test_unreachable_url_of_a_workspace_with_another_socket_is_that_of_the_ui(server, lock):
    (lock.parent / WORKSPACE).write_text("socket: /tmp/other/code\n")
    Thread(target=greet, args=[server]).start()
    assert unreachable_url(lock.parent) == URL


def test_unreachable_url_of_a_starting_ui_is_empty(lock):
    lock.write_text(f"{URL}\n1")
    assert unreachable_url(lock.parent) == ""


def test_unreachable_url_without_a_running_ui_is_empty(tmp_path):
    assert unreachable_url(tmp_path) == ""
    (tmp_path / LOCK).write_text(f"{URL}\n1\n/tmp/missing/code")
    assert unreachable_url(tmp_path) == ""
