"""Dagster UI: one code server, shared by the web server and the daemon."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import yaml

from nvtrader_pipelines.orchestration.instance import dagster_home
from nvtrader_pipelines.orchestration.ui_processes import HOST, SOCKET, run_servers
from nvtrader_pipelines.storage.code_server import WORKSPACE
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.home import Home

LOCATION = "nvtrader_pipelines.orchestration.location"
WEB_SERVER = "nvtrader_pipelines.orchestration.ui_web"
QUIET = ("--log-level", "warning")


def serve(home: Home, port: int, note: str) -> NoReturn:
    """Replace this process by a small one that serves the UI of a home until it is stopped."""
    folder = dagster_home(home)
    own = {
        "DAGSTER_HOME": str(folder),
        "NVTRADER_HOME": str(home.root),
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2"),  # servers have dozens of idle threads
    }
    os.chdir(home.root)
    message = f"Dagster UI on http://{HOST}:{port} (Ctrl-C stops it)\n{note}"
    run_servers(folder, port, message, server_commands(home, port), own, workspace_text(home))


def server_commands(home: Home, port: int) -> list[list[str]]:
    """Build the commands of the servers; of several code locations web server and daemon load each."""
    bin_folder, location = Path(sys.executable).parent, code_location(home)
    workspace = str(home.dagster / WORKSPACE if location else home.root / "workspace.yaml")
    quiet = ["--dagster-log-level", "warning", "--code-server-log-level", "warning"]
    web = [*quiet, "--host", HOST, "--port", str(port), "-w", workspace]
    shared = [
        [sys.executable, "-m", WEB_SERVER, *web],
        [str(bin_folder / "dagster-daemon"), "run", *QUIET, "-w", workspace],
    ]
    if location is None:
        return shared
    name, *target = location
    code = ["api", "grpc", "--socket", SOCKET, "--location-name", name, "--lazy-load-user-code", *QUIET, *target]
    return [[str(bin_folder / "dagster"), *code], *shared]


def workspace_text(home: Home) -> str:
    """Text of the workspace file that names the code server; empty for several code locations."""
    location = code_location(home)
    if location is None:
        return ""
    return yaml.safe_dump({"load_from": [{"grpc_server": {"socket": SOCKET, "location_name": location[0]}}]})


def code_location(home: Home) -> list[str] | None:
    """Name of the home's code location and the options that load it; None for several."""
    path = home.root / "workspace.yaml"
    if not path.exists():
        return [LOCATION, "-m", LOCATION]
    match read_document(path):
        case {"load_from": [{"python_file": {"relative_path": file, "attribute": attribute, "location_name": name}}]}:
            return [name, "-f", str(home.root / file), "-a", attribute]
        case _:
            return None
