"""Dagster UI: one code server, shared by the web server and the daemon."""

import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import yaml

from nvtrader_pipelines.orchestration.instance import dagster_home
from nvtrader_pipelines.orchestration.ui_processes import HOST, run_servers
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.home import Home

LOCATION = "nvtrader_pipelines.orchestration.location"
WORKSPACE = "ui-workspace.yaml"  # in the folder of the Dagster instance; names the code server
SUPERSEDED_WARNING = "ignore:Function `dev_command` is superseded"  # a warning of `dagster dev` about itself
QUIET = ("--log-level", "warning")


def serve(home: Home, port: int, note: str) -> NoReturn:
    """Replace this process by a small one that serves the UI of a home until it is stopped."""
    folder = dagster_home(home)
    own = {
        "DAGSTER_HOME": str(folder),
        "NVTRADER_HOME": str(home.root),
        "PYTHONWARNINGS": ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), SUPERSEDED_WARNING))),
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2"),  # servers have dozens of idle threads
    }
    os.chdir(home.root)
    message = f"Dagster UI on http://{HOST}:{port} (Ctrl-C stops it)\n{note}"
    run_servers(folder, port, message, server_commands(home, port), own)


def server_commands(home: Home, port: int) -> list[list[str]]:
    """Build the commands of the servers; `dagster dev` serves several code locations."""
    bin_folder, web = Path(sys.executable).parent, ["--host", HOST, "--port", str(port)]
    location = code_location(home)
    if location is None:
        return [[str(bin_folder / "dagster"), "dev", *QUIET, *web, "-w", str(home.root / "workspace.yaml")]]
    name, *target = location
    socket = str(Path(tempfile.mkdtemp(prefix="nvtrader-ui-")) / "code")
    workspace = home.dagster / WORKSPACE
    workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": {"socket": socket, "location_name": name}}]}))
    code = ["api", "grpc", "--socket", socket, "--location-name", name, "--lazy-load-user-code", *QUIET, *target]
    return [
        [str(bin_folder / "dagster"), *code],
        [str(bin_folder / "dagster-webserver"), "--dagster-log-level", "warning", *web, "-w", str(workspace)],
        [str(bin_folder / "dagster-daemon"), "run", *QUIET, "-w", str(workspace)],
    ]


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
