"""Dagster UI and daemon as a child process."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

import psutil

from nvtrader_pipelines.orchestration.instance import dagster_home
from nvtrader_pipelines.storage.home import Home

HOST = "127.0.0.1"
GRACE_SECONDS = 10.0


def server_command(home: Home, port: int) -> list[str]:
    """Build the command that serves the code location of a home."""
    dagster = str(Path(sys.executable).with_name("dagster"))
    module = ["-m", "nvtrader_pipelines.orchestration.location"]
    workspace = home.root / "workspace.yaml"
    location = ["-w", str(workspace)] if workspace.exists() else module
    return [dagster, "dev", "--host", HOST, "--port", str(port), *location]


def serve(home: Home, port: int) -> int:
    """Serve until stopped and return the exit code of the server.

    The server has a process session of its own; started in the background of a shell it would ignore SIGTERM.

    Raises:
        ValueError: if another program listens on the port.
    """
    require_free(port)
    folder = dagster_home(home)
    environment = {**os.environ, "DAGSTER_HOME": str(folder), "NVTRADER_HOME": str(home.root)}
    sys.stdout.write(f"Dagster UI on http://{HOST}:{port} (Ctrl-C stops it)\n")
    sys.stdout.flush()
    server = subprocess.Popen(server_command(home, port), env=environment, cwd=home.root, start_new_session=True)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        server.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        return server.wait()
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


def terminate_session(session: int) -> None:
    """Terminate processes left by the server: its code server and resumable runs."""
    while left := _processes_of(session):  # again, since a run that ends may just have started others
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
