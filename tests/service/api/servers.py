"""The service of a home as a process."""

import socket
import subprocess
from contextlib import contextmanager

from tests.homes import NVTRADER, environment
from tests.service.api.conftest import TOKEN


def free_port():
    """Port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def served(home, *options, port=None, command=NVTRADER):
    """Service of a home as a process of a command; yields it, its URL, and its first line."""
    port = port or free_port()
    process = subprocess.Popen(
        [command, "serve", "--port", str(port), *options],
        env=environment(home) | {"NVTRADER_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, f"http://127.0.0.1:{port}", process.stdout.readline()
    finally:
        process.kill()
        process.communicate()
