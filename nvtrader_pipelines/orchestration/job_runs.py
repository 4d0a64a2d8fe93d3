"""Runs of jobs in Dagster, launched by a UI or in processes of their own, and the schedules that a person follows."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import psutil

from nvtrader_pipelines.orchestration.assets.autoresearch import session_of
from nvtrader_pipelines.orchestration.instance import (
    PROCESS_TAG,
    cancel_dead_runs,
    close_ended_runs,
    machine_of,
    open_instance,
    tagged_process,
)
from nvtrader_pipelines.orchestration.job_states import RUN_NOW, JobRun, ScheduleState, scheduled_jobs
from nvtrader_pipelines.orchestration.launching import RunningUi
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.run_requirements import PARTITION
from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.store import Store

SCHEDULE = "dagster/schedule_name"  # tag
DAGSTER_TAGS = {PARTITION, "dagster/parent_run_id", SCHEDULE, "dagster/sensor_name"}  # worth showing


class JobRuns:
    """Runs of a home, read from its Dagster instance, which stays open."""

    def __init__(self, store: Store) -> None:
        self._store, self._instance = store, open_instance(store)

    def close(self) -> None:
        """Close the Dagster instance."""
        self._instance.dispose()

    def close_dead(self) -> None:
        """Close the runs, in Dagster and in the ledger, whose process was killed."""
        cancel_dead_runs(self._instance)
        close_ended_runs(self._store.ledger, self._instance)
        self._store.ledger.close_interrupted()

    def run(self, run_id: str) -> JobRun:
        """Return a run.

        Raises:
            ValueError: if there is no such run.
        """
        return _job_run(self._record(run_id))

    def recent(self, limit: int) -> list[JobRun]:
        """Return the last runs, newest first."""
        cancel_dead_runs(self._instance)
        return [_job_run(record) for record in self._instance.get_run_records(limit=limit)]

    def failure(self, run_id: str) -> str:
        """Reason why a run failed or was canceled, in a sentence."""
        events = self._instance.all_logs(run_id, {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE})
        for entry in events:
            event = entry.get_dagster_event()
            error = event.step_failure_data.error if event.is_step_failure else None
            while error is not None and error.cause is not None:
                error = error.cause
            if error is not None:
                return " ".join(error.message.partition(": ")[2].split()) or error.message
        return f"the run ended as {self.run(run_id).status}"

    def session_id(self, run_id: str) -> str:
        """Id of the search session of a run of the job `autoresearch`.

        Raises:
            ValueError: if there is no such run.
        """
        return session_of(self._instance, self._record(run_id).dagster_run, self._store.home).session_id

    def add_experiment(self, partition_key: str) -> None:
        """Let a registered version of an experiment be launched."""
        self._instance.add_dynamic_partitions(EXPERIMENTS.name or "", [partition_key])

    def terminate(self, run_id: str) -> None:
        """Interrupt a run; a search ends after its current trials.

        Raises:
            ValueError: if there is no such run, or it has ended.
            StorageError: if a UI that does not run launched it, or a UI refuses.
        """
        record = self._record(run_id)
        run, url = record.dagster_run, running_url(self._store.home.dagster)
        if run.is_finished:
            raise ValueError(f"a run must be under way to be terminated, but {run_id} has ended: {run.status.value}")
        mark = run.tags.get(PROCESS_TAG)
        if mark is None and not url:
            raise StorageError(f"a UI launched the run {run_id} and must run to end it; start it: `nvtrader ui`")
        if mark is None:
            RunningUi(url).terminate(run_id)
        elif machine := machine_of(mark):
            raise StorageError(f"the run {run_id} must be ended where it runs, on the machine {machine}")
        elif process := tagged_process(mark):
            self._instance.report_run_canceling(run)  # by which Dagster takes the signal for a request
            with suppress(psutil.NoSuchProcess):  # it has just ended
                process.terminate()

    def schedules(self) -> list[ScheduleState]:
        """Return the states of the schedules that a person follows."""
        url = running_url(self._store.home.dagster)
        served: dict[str, dict[str, Any]] = {}
        with suppress(UnavailableError):  # a UI that starts
            served = RunningUi(url).schedules() if url else {}
        return [self._schedule(name, job, served.get(name)) for name, job in scheduled_jobs(self._store.home).items()]

    def _schedule(self, name: str, job: str, served: Mapping[str, Any] | None) -> ScheduleState:
        """State of a schedule, with its status and next tick in a running UI."""
        is_on = served is not None and served["scheduleState"]["status"] == "RUNNING"
        future = served["futureTicks"]["results"] if served and is_on else []
        tick = max(self._last_ticks(name), key=lambda tick: tick.timestamp, default=None)
        read = self._instance.get_run_records
        runs = [run for tag in (SCHEDULE, RUN_NOW) for run in read(dg.RunsFilter(tags={tag: name}), limit=1)]
        last = max(runs, key=lambda run: run.create_timestamp, default=None)
        return ScheduleState(
            schedule=name,
            job=job,
            is_on=is_on,
            next_at=_time(future[0]["timestamp"]) if future else None,
            last_tick_at=_time(tick.timestamp) if tick else None,
            last_tick=tick.status.value if tick else None,
            skip_reason=tick.skip_reason if tick else None,
            last_run=_job_run(last) if last else None,
        )

    def _last_ticks(self, schedule: str) -> list[Any]:
        """Last tick of a schedule per code location that it was in."""
        states = [state for state in self._instance.all_instigator_state() if state.instigator_name == schedule]
        read = self._instance.get_ticks
        return [tick for state in states for tick in read(state.instigator_origin_id, state.selector_id, limit=1)]

    def _record(self, run_id: str) -> dg.RunRecord:
        cancel_dead_runs(self._instance)
        record = self._instance.get_run_record_by_id(run_id)
        if record is None:
            raise ValueError(f"a run must be in {self._store.home.dagster}, but {run_id!r} is not; list the last runs")
        return record


def _job_run(record: dg.RunRecord) -> JobRun:
    run = record.dagster_run
    return JobRun(
        run_id=run.run_id,
        job=run.job_name,
        status=run.status.value,
        created_at=record.create_timestamp,
        started_at=_time(record.start_time),
        ended_at=_time(record.end_time),
        tags={key: value for key, value in run.tags.items() if key.startswith("nvtrader/") or key in DAGSTER_TAGS},
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
