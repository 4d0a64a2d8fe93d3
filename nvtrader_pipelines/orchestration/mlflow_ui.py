"""MLflow's UI on the store of a home, as a child process."""

import sys
from pathlib import Path

from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking, curves_path
from nvtrader_pipelines.orchestration.ui import HOST, only_server, require_free, run_server
from nvtrader_pipelines.storage.home import Home

LOCK = "ui.lock"  # in the folder of the MLflow store; holds the URL
ENVIRONMENT = {  # no report of its use over the network, and no workers for jobs of language models
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PYTHONWARNINGS": "ignore:starlette.middleware.wsgi is deprecated",
}


def mlflow_command(home: Home, port: int) -> list[str]:
    """Build the command that serves the MLflow store of a home."""
    mlflow = str(Path(sys.executable).with_name("mlflow"))
    address = ["--host", HOST, "--port", str(port), "--workers", "1"]
    store = f"sqlite:///{home.mlflow}/mlflow.db"
    stores = ["--backend-store-uri", store, "--registry-store-uri", store, "--no-serve-artifacts"]
    return [mlflow, "server", *address, *stores, "--uvicorn-opts", "--log-level warning"]


def serve_mlflow(home: Home, port: int) -> int:
    """Serve until stopped, print the URL once it listens, and return the exit code.

    Raises:
        ValueError: if another UI serves the store, or another program listens on the port.
    """
    home.mlflow.mkdir(parents=True, exist_ok=True)
    url = f"http://{HOST}:{port}"
    with only_server(home.mlflow / LOCK, url):
        require_free(port)
        _, _, trainings_id = MlflowTracking(folder=str(home.mlflow)).open()
        message = f"MLflow UI on {url} (Ctrl-C stops it)\ncurves of trainings: {url}/{curves_path(trainings_id)}"
        return run_server(mlflow_command(home, port), ENVIRONMENT, home.mlflow, port, message)
