"""The Dagster instance of a home folder: its own DAGSTER_HOME under the warehouse."""

import os
from pathlib import Path

import dagster as dg
import polars as pl
import psutil
import yaml

from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.store import Store

SETTINGS = Path(__file__).with_name("dagster.yaml")
IN_PROCESS = "in-process.yaml"  # the same settings but for this
PROCESS_TAG = "nvtrader/process"
# Dagster documents this class, and dagster.yaml names one by the path of its module.
NO_COMPUTE_LOGS = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}


def dagster_home(home: Home) -> Path:
    """The folder, made with the shipped settings where it is missing."""
    folder = home.dagster
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "dagster.yaml"
    if not settings.exists():
        settings.write_bytes(SETTINGS.read_bytes())
    return folder


def open_instance(store: Store) -> dg.DagsterInstance:
    """The instance for runs of this process; close it or use it as a context manager.

    What steps print stays on the console: to capture it too, Dagster would start four processes a step.
    """
    folder = dagster_home(store.home)
    os.environ["DAGSTER_HOME"] = str(folder)  # child processes of a run find the instance by it
    settings = yaml.safe_load((folder / "dagster.yaml").read_bytes())
    write_atomically(folder / IN_PROCESS, yaml.safe_dump({**settings, "compute_logs": NO_COMPUTE_LOGS}).encode())
    instance = dg.DagsterInstance.from_config(str(folder), IN_PROCESS)
    cancel_dead_runs(instance)
    close_ended_runs(store.ledger, instance)
    return instance


def close_ended_runs(ledger: Ledger, instance: dg.DagsterInstance) -> list[str]:
    """Close in the ledger the runs on which nobody works any more: their process is dead, or their Dagster run ended.

    Returns:
        Their ids.
    """
    launchers = ledger.runs().filter(pl.col("status") == "running")["dagster_run_id"].drop_nulls().to_list()
    runs = instance.get_runs(dg.RunsFilter(run_ids=launchers)) if launchers else []
    return ledger.close_interrupted(run.run_id for run in runs if run.is_finished)


def process_tag() -> dict[str, str]:
    """The tag by which a run in this process is known to be dead when the process is."""
    return {PROCESS_TAG: _process_key(psutil.Process())}


def cancel_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Cancel the runs whose process was killed, and free what they held of a pool: the next run would wait for it.

    Returns:
        Their ids.
    """
    ended = []
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        mark = run.tags.get(PROCESS_TAG)
        if mark and not _is_alive(mark):
            instance.report_run_canceled(run, message="The process of this run was killed.")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            ended.append(run.run_id)
    return ended


def _process_key(process: psutil.Process) -> str:
    return f"{process.pid}@{process.create_time():.0f}"  # a number is used again, but not with the same time


def _is_alive(mark: str) -> bool:
    try:
        return _process_key(psutil.Process(int(mark.partition("@")[0]))) == mark
    except psutil.NoSuchProcess:
        return False
