"""The Dagster instance of a home folder: its own DAGSTER_HOME under the warehouse."""

import os
from pathlib import Path

import dagster as dg
import yaml

from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home

SETTINGS = Path(__file__).with_name("dagster.yaml")
IN_PROCESS = "in-process.yaml"  # the same settings but for this
NOT_CAPTURED = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}


def dagster_home(home: Home) -> Path:
    """The folder, made with the shipped settings where it is missing."""
    folder = home.dagster
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "dagster.yaml"
    if not settings.exists():
        settings.write_bytes(SETTINGS.read_bytes())
    return folder


def open_instance(home: Home) -> dg.DagsterInstance:
    """The instance for runs of this process; close it or use it as a context manager.

    What steps print stays on the console: to capture it too, Dagster would start four processes a step.
    """
    folder = dagster_home(home)
    os.environ["DAGSTER_HOME"] = str(folder)  # child processes of a run find the instance by it
    settings = yaml.safe_load((folder / "dagster.yaml").read_bytes())
    write_atomically(folder / IN_PROCESS, yaml.safe_dump({**settings, "compute_logs": NOT_CAPTURED}).encode())
    return dg.DagsterInstance.from_config(str(folder), IN_PROCESS)
