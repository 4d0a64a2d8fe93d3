"""Dagster UI and daemon as a child process."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from nvtrader_pipelines.orchestration.instance import dagster_home
from nvtrader_pipelines.storage.home import Home

HOST = "127.0.0.1"
GRACE_SECONDS = 10.0
POLL_SECONDS = 0.2
LOCK = "ui.lock"  # in the folder of the Dagster instance; holds the URL
SUPERSEDED_WARNING = "ignore:Function `dev_command` is superseded"  # a warning of `dagster dev` about itself


def server_command(home: Home, port: int) -> list[str]:
    """Build the command that serves the code location of a home."""
    dagster = str(Path(sys.executable).with_name("dagster"))
    module = ["-m", "nvtrader_pipelines.orchestration.location"]
    workspace = home.root / "workspace.yaml"
    location = ["-w", str(workspace)] if workspace.exists() else module
    return [dagster, "dev", "--log-level", "warning", "--host", HOST, "--port", str(port), *location]


def serve(home: Home, port: int, note: str) -> int:
    """Serve until stopped, print the URL and a note once it listens, and return the exit code.

    Raises:
        ValueError: if another UI serves the home, or another program listens on the port.
    """
    folder = dagster_home(home)
    with only_server(folder / LOCK, f"http://{HOST}:{port}"):
        require_free(port)
        warnings = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), SUPERSEDED_WARNING)))
        own = {"DAGSTER_HOME": str(folder), "NVTRADER_HOME": str(home.root), "PYTHONWARNINGS": warnings}
        message = f"Dagster UI on http://{HOST}:{port} (Ctrl-C stops it)\n{note}"
        return run_server(server_command(home, port), own, home.root, port, message)


@contextmanager
def only_server(lock: Path, url: str) -> Iterator[None]:
    """Hold the lock of a home's UI, with its URL; the kernel releases it when the process dies.

    Raises:
        ValueError: if another process holds it.
    """
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ValueError(f"a UI already serves this home on {file.read()}; open it, or stop it first") from None
        file.truncate(0)
        file.write(url)
        file.flush()
        yield


def run_server(command: list[str], settings: Mapping[str, str], folder: Path, port: int, message: str) -> int:
    """Run a server in a folder until it is stopped, print a message once it listens, and return its exit code.

    The server has a process session of its own; started in the background of a shell it would ignore SIGTERM.
    """
    server = subprocess.Popen(command, env={**os.environ, **settings}, cwd=folder, start_new_session=True)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        server.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        while server.poll() is None and not is_listening(port):
            time.sleep(POLL_SECONDS)
        if server.poll() is None:
            sys.stdout.write(f"{message}\n")
            sys.stdout.flush()
        code = server.wait()
        return 0 if code == -signal.SIGTERM else code  # a server that was stopped has not failed
    finally:
        terminate_session(server.pid)


def require_free(port: int) -> None:
    """Raise if a port is taken.

    Raises:
        ValueError: if another program listens on the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just closed is free
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ValueError(f"port {port} of {HOST} is taken; name another with --port") from error


def is_listening(port: int) -> bool:
    """Whether a program accepts connections on a port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def terminate_session(session: int) -> None:
    """Terminate processes left by the server: its code server and resumable runs."""
    while left := _processes_of(session):  # repeated, since a process that ends may just have started others
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(left, timeout=GRACE_SECONDS)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _processes_of(session: int) -> list[psutil.Process]:
    """Live processes of a process session."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
