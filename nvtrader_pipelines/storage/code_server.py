"""Code server of a running UI, as the UI's lock and workspace name it; imports only the standard library."""

import fcntl
import socket
from contextlib import suppress
from pathlib import Path

LOCK = "ui.lock"  # in the folder that a UI shows; holds its URL and, once it runs, the socket of its code server
WORKSPACE = "ui-workspace.yaml"  # in the folder of the Dagster instance; names the code server
ANSWER_SECONDS = 5.0
REMEDY = "stop this UI and start it again with `nvtrader ui`"


def is_reachable(workspace: Path, path: str) -> bool:
    """Whether a workspace names a socket, and the code server answers on it.

    A gRPC server greets every connection; the kernel accepts one for a hung server, too.
    """
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(path)
        return bool(connection.recv(1)) and path in workspace.read_text()
    return False


def unreachable_url(folder: Path) -> str:
    """URL of a running UI whose code server cannot be reached; empty if there is none."""
    url, *sockets = _locked_lines(folder)
    return "" if all(is_reachable(folder / WORKSPACE, path) for path in sockets) else url


def running_url(folder: Path) -> str:
    """URL of a running UI; empty if none runs."""
    return _locked_lines(folder)[0]


def _locked_lines(folder: Path) -> list[str]:
    """Lines of the lock of a running UI; an empty one if none runs."""
    lock = folder / LOCK
    if not lock.exists():
        return [""]
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().splitlines() or [""]
    return [""]
