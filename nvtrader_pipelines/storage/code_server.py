"""Code server of a running UI, as the UI's lock and workspace name it; imports only the standard library."""

import fcntl
import socket
from contextlib import suppress
from pathlib import Path

LOCK = "ui.lock"  # in the folder that a UI shows; holds its URL, its session and, once it runs, its socket
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
    url, _, *sockets = _locked_lines(folder)
    return "" if all(is_reachable(folder / WORKSPACE, path) for path in sockets) else url


def running_url(folder: Path) -> str:
    """URL of a running UI; empty if none runs."""
    return _locked_lines(folder)[0]


def running_session(folder: Path) -> tuple[str, int]:
    """URL of a running UI and the process session of its servers; empty and 0 if none runs."""
    url, session, *_ = _locked_lines(folder)
    return url, int(session)


def _locked_lines(folder: Path) -> list[str]:
    """Lines of the lock of a running UI; an empty URL and no session if none runs."""
    lock = folder / LOCK
    if lock.exists():
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return (file.read() or "\n0").splitlines()
    return ["", "0"]
