"""The Dagster UI with its daemon, as a child that stops when it is told to."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from nvtrader_pipelines.orchestration.instance import dagster_home
from nvtrader_pipelines.storage.home import Home

HOST = "127.0.0.1"


def command(home: Home, port: int) -> list[str]:
    """The command that serves this checkout's code location."""
    dagster = str(Path(sys.executable).with_name("dagster"))
    module = ["-m", "nvtrader_pipelines.orchestration.location"]
    workspace = home.root / "workspace.yaml"
    location = ["-w", str(workspace)] if workspace.exists() else module
    return [dagster, "dev", "--host", HOST, "--port", str(port), *location]


def serve(home: Home, port: int) -> int:
    """Serve until stopped; the exit code of the server.

    The server runs in a session of its own: started from a shell in the background it would ignore SIGTERM.
    """
    folder = dagster_home(home)
    environment = {**os.environ, "DAGSTER_HOME": str(folder), "NVTRADER_HOME": str(home.root)}
    sys.stdout.write(f"Dagster UI on http://{HOST}:{port} (Ctrl-C stops it)\n")
    sys.stdout.flush()
    server = subprocess.Popen(command(home, port), env=environment, cwd=home.root, start_new_session=True)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        server.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return server.wait()
