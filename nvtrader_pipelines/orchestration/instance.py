"""The Dagster instance of a home folder: its own DAGSTER_HOME under the warehouse."""

import os
from pathlib import Path

import dagster as dg

from nvtrader_pipelines.storage.home import Home

SETTINGS = Path(__file__).with_name("dagster.yaml")


def dagster_home(home: Home) -> Path:
    """The folder, made with the shipped settings where it is missing."""
    folder = home.dagster
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "dagster.yaml"
    if not settings.exists():
        settings.write_bytes(SETTINGS.read_bytes())
    return folder


def open_instance(home: Home) -> dg.DagsterInstance:
    """The instance; close it or use it as a context manager."""
    folder = dagster_home(home)
    os.environ["DAGSTER_HOME"] = str(folder)  # child processes of a run find the instance by it
    return dg.DagsterInstance.from_config(str(folder))
