"""MLflow's UI on the store of a home."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking, curves_path
from nvtrader_pipelines.orchestration.ui_processes import HOST, run_servers
from nvtrader_pipelines.storage.home import Home

ENVIRONMENT = {  # no report of its use over the network, and no workers for jobs of language models
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PYTHONWARNINGS": "ignore:starlette.middleware.wsgi is deprecated",
}


def mlflow_command(home: Home, port: int) -> list[str]:
    """Build the command that serves the MLflow store of a home, which the environment names."""
    mlflow = str(Path(sys.executable).with_name("mlflow"))
    address = ["--host", HOST, "--port", str(port), "--workers", "1"]
    artifacts = ["--default-artifact-root", MlflowTracking.at(home).artifacts, "--no-serve-artifacts"]
    return [mlflow, "server", *address, *artifacts, "--uvicorn-opts", "--log-level warning"]


def serve_mlflow(home: Home, port: int) -> NoReturn:
    """Replace this process by one that serves the MLflow store of a home until it is stopped."""
    home.mlflow.mkdir(parents=True, exist_ok=True)
    client, _, trainings_id = MlflowTracking.at(home).open()
    stores = dict.fromkeys(("MLFLOW_BACKEND_STORE_URI", "MLFLOW_REGISTRY_STORE_URI"), client.tracking_uri)
    os.chdir(home.mlflow)
    url = f"http://{HOST}:{port}"
    message = f"MLflow UI on {url} (Ctrl-C stops it)\ncurves of trainings: {url}/{curves_path(trainings_id)}"
    run_servers(home.mlflow, port, message, [mlflow_command(home, port)], {**ENVIRONMENT, **stores})
