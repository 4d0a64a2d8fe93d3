"""Dagster instance of a home folder, with its DAGSTER_HOME under the warehouse."""

import json
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import dagster as dg
import polars as pl
import psutil
import yaml
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.file_problems import find_damaged_dagster
from nvtrader_pipelines.storage.files import create_aside, file_lock, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.processes import host_name, is_alive, this_process
from nvtrader_pipelines.storage.postgres import prepare_schema
from nvtrader_pipelines.storage.settings import database_url, has_ledger_elsewhere
from nvtrader_pipelines.storage.store import Store

SCHEMA = "dagster"  # of Postgres
URL_VARIABLE = "NVTRADER_DAGSTER_URL"  # with the password, for this process and its children; set from database_url
STORAGE = f"""storage: # by database_url of the home
  postgres:
    postgres_url:
      env: {URL_VARIABLE}
"""
SETTINGS = Path(__file__).with_name("dagster.yaml")
IN_PROCESS = "in-process.yaml"  # dagster.yaml without captured output
UNFINISHED_STATUSES = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
COPY_MESSAGE = "the home was copied while this run was under way; run it again to resume it"
LOST_MESSAGE = "the UI that had launched this run was killed"
PROCESS_TAG = "nvtrader/process"
CODE_SERVER_TAG = ".dagster/grpc_info"  # Dagster's, of a run that a code server launched: JSON
# Dagster documents this class, and dagster.yaml names one by the path of its module.
NO_COMPUTE_LOGS = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}


def dagster_home(home: Home) -> Path:
    """Return the DAGSTER_HOME of a home; create it with the shipped settings if missing.

    Raises:
        DamagedFileError: if its settings or a database are damaged.
        UnavailableError: if its Postgres cannot be used.
    """
    folder, url = home.dagster, database_url(home)
    for error in find_damaged_dagster(home):
        raise error
    if not folder.exists():
        with file_lock(home.warehouse / ".dagster.lock"):
            if not folder.exists():
                _create_folder(folder, with_databases=url is None)
    if not (folder / "dagster.yaml").exists():
        write_atomically(folder / "dagster.yaml", SETTINGS.read_bytes())
    if _choose_storage(folder / "dagster.yaml", in_postgres=url is not None) and url:
        url = url.set(drivername="postgresql+psycopg2")  # of dagster-postgres
        os.environ[URL_VARIABLE] = prepare_schema("Dagster database", url, SCHEMA, partial(_create_tables, folder))
    return folder


def _choose_storage(path: Path, *, in_postgres: bool) -> bool:
    """Add Postgres to the settings, or drop it; return False if they name a storage of their own."""
    text = path.read_text(encoding="utf-8")
    without = text.replace(STORAGE, "")
    if without == text and "storage" in read_document(path):
        return False
    chosen = f"{without.rstrip()}\n{STORAGE}" if in_postgres else without
    if chosen != text:
        write_atomically(path, chosen.encode())
    return True


def _create_tables(folder: Path, url: str) -> None:
    os.environ[URL_VARIABLE] = url
    dg.DagsterInstance.from_config(str(folder)).dispose()


def _create_folder(folder: Path, *, with_databases: bool) -> None:
    """Create the folder with settings and databases at once: an empty one is damaged."""
    with create_aside(folder) as new:
        write_atomically(new / "dagster.yaml", SETTINGS.read_bytes())
        if with_databases:
            dg.DagsterInstance.from_config(str(new)).dispose()


def open_instance(store: Store) -> dg.DagsterInstance:
    """Open the instance for runs of this process; close it or use it as a context manager.

    Output of steps stays on the console: capturing it takes Dagster four processes per step.
    """
    folder = dagster_home(store.home)
    os.environ["DAGSTER_HOME"] = str(folder)  # child processes of a run find the instance by it
    settings = read_document(folder / "dagster.yaml")
    write_atomically(folder / IN_PROCESS, yaml.safe_dump({**settings, "compute_logs": NO_COMPUTE_LOGS}).encode())
    instance = dg.DagsterInstance.from_config(str(folder), IN_PROCESS)
    cancel_dead_runs(instance)
    close_ended_runs(store.ledger, instance)
    return instance


def close_ended_runs(ledger: Ledger, instance: dg.DagsterInstance) -> None:
    """Close the runs in the ledger whose Dagster run has ended."""
    launchers = (
        ledger.runs(with_worlds=True).filter(pl.col("status") == "running")["dagster_run_id"].drop_nulls().to_list()
    )
    runs = instance.get_runs(dg.RunsFilter(run_ids=launchers)) if launchers else []
    ledger.close_interrupted(run.run_id for run in runs if run.is_finished)


def close_copied_runs(store: Store) -> list[str]:
    """Close the runs that were under way when a home was copied.

    They continue in the original, if at all. A ledger outside the home is left alone, since the original uses it, too.

    Returns:
        The ids of the runs closed in the ledger.
    """
    if has_ledger_elsewhere(store.home):
        return []
    closed = store.ledger.close_running(COPY_MESSAGE)
    with open_instance(store) as instance:
        for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED_STATUSES)):
            _cancel(instance, run, COPY_MESSAGE)
    return closed


def process_tag() -> dict[str, str]:
    """Tag of a run with its process, so that the run can be canceled once that is dead."""
    number, started_at = this_process()
    return {PROCESS_TAG: f"{number}@{started_at.timestamp():.0f}@{host_name()}"}


def cancel_dead_runs(instance: dg.DagsterInstance) -> None:
    """Cancel runs whose process was killed, and free the pool slots of runs that ended or are unknown."""
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED_STATUSES)):
        mark = run.tags.get(PROCESS_TAG)
        if mark and not machine_of(mark) and tagged_process(mark) is None:
            _cancel(instance, run, "The process of this run was killed.")
    storage = instance.event_log_storage
    for run_id in storage.get_concurrency_run_ids():
        run = instance.get_run_by_id(run_id)
        if run is None or run.is_finished:  # as in a copy made while it ran: the next run would wait for ever
            storage.free_concurrency_slots_for_run(run_id)


def fail_lost_runs(instance: dg.DagsterInstance) -> None:
    """Fail the runs under way that a UI launched which is gone, killed or with its machine; Dagster retries them.

    A run of a UI has the socket of that UI's code server, and ends with it. One that was terminated is canceled.
    """
    under_way = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
    for run in instance.get_runs(dg.RunsFilter(statuses=under_way)):
        path = json.loads(run.tags.get(CODE_SERVER_TAG, "{}")).get("socket")
        if not path or _is_listening(path):
            continue
        if run.status is dg.DagsterRunStatus.CANCELING:
            _cancel(instance, run, LOST_MESSAGE)
        else:
            instance.report_run_failed(run, LOST_MESSAGE)
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def _is_listening(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            return False
        return True


def _cancel(instance: dg.DagsterInstance, run: dg.DagsterRun, message: str) -> None:
    """Cancel a run and free its pool slots for the next."""
    instance.report_run_canceled(run, message=message)
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def machine_of(mark: str) -> str:
    """Machine that a tag names; empty if it is this one, as in tags of earlier versions."""
    machine = mark.partition("@")[2].partition("@")[2]
    return machine if machine != host_name() else ""


def tagged_process(mark: str) -> psutil.Process | None:
    """Live process of this machine that a tag names; None if it has ended, also if its parent has not seen that."""
    number, started_at = mark.split("@")[:2]
    if not is_alive(int(number), datetime.fromtimestamp(float(started_at), UTC)):
        return None
    with suppress(psutil.NoSuchProcess):  # it has just ended
        return psutil.Process(int(number))


def let_waiting_steps_sleep() -> None:
    """Let a step that waits for its pool sleep until its next claim, in this process.

    Dagster 1.13 takes the minimum of 0 and the time left, so that the wait uses a whole processor.
    """

    def seconds_left(self: InstanceConcurrencyContext) -> float:
        now = time.time()
        return max(0.0, min((at - now for at in self._pending_timeouts.values()), default=0.0))

    InstanceConcurrencyContext.interval_to_next_pending_claim_check = seconds_left
