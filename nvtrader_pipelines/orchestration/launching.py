"""Launch of jobs from another process: by the UI where one runs, else in a detached process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.request import ProxyHandler, Request, build_opener
from uuid import uuid4

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.orchestration.job_states import RUN_NOW, scheduled_jobs
from nvtrader_pipelines.orchestration.run_requirements import (
    PARTITION,
    config_error,
    one_line,
    partition_keys,
    require_config,
    require_partition,
    require_search,
)
from nvtrader_pipelines.runs.interruptions import require_no_halt
from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    import dagster as dg

FAILURE_REASON = "dagster/failure_reason"  # tag
INTERRUPTIONS = {"CANCELED", "UNEXPECTED_TERMINATION"}  # status by request, and reason of a failure by a signal alone
ANSWER_SECONDS = 30.0
STARTED = "started "  # before the id of the run in the answer of a detached process; else it answers why not

UNHALTED_JOBS = {"market", "preferences", "upkeep"}  # they neither train nor trade

JOBS = """{ instance { daemonHealth { allDaemonStatuses { required healthy } } }
    repositoriesOrError { ... on PythonError { message } ... on RepositoryConnection { nodes {
        name location { name } jobs { name runTags { key value } } } } } }"""
PARTITIONS = """query($repository: RepositorySelector!, $job: String!) {
    partitionSetsOrError(repositorySelector: $repository, pipelineName: $job) { ... on PartitionSets { results {
        partitionsOrError { ... on PythonError { message } ... on Partitions { results { name } } } } } } }"""
VALIDATE = """query($job: PipelineSelector!, $config: RunConfigData!) {
    isPipelineConfigValid(pipeline: $job, mode: "default", runConfigData: $config) {
        ... on PythonError { message } ... on RunConfigValidationInvalid { errors { message } } } }"""
LAUNCH = """mutation($run: ExecutionParams!) { launchRun(executionParams: $run) {
    ... on Error { message } ... on LaunchRunSuccess { run { runId } } } }"""
TERMINATE = """mutation($id: String!) { terminateRun(runId: $id, terminatePolicy: SAFE_TERMINATE) {
    ... on Error { message } ... on TerminateRunFailure { message } } }"""
SCHEDULES = """{ repositoriesOrError { ... on PythonError { message } ... on RepositoryConnection { nodes { schedules {
    name scheduleState { status } futureTicks(limit: 1) { results { timestamp } } } } } } }"""


def launch(
    store: Store,
    job: str,
    *,
    partition: str | None = None,
    config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Launch a job, and return the id of its run.

    A running UI queues the run under its limits. Else a detached process, which outlives this one, runs it at once
    without limits; it begins after some seconds of imports.

    Args:
        store: store of the home.
        job: name of the job.
        partition: key of the job's partition; tags may name a range of them instead.
        config: run configuration.
        tags: tags of the run, besides those of the job.

    Raises:
        RunHalted: if trading is halted, and the job trains or trades.
        ValueError: if there is no such job or partition, or the configuration is not valid.
        StorageError: if the UI or the process fails, or the settings of a search are not valid.
    """
    _require_may_run(store, job)
    run_tags = {**(tags or {}), **({PARTITION: partition} if partition else {})}
    url = running_url(store.home.dagster)
    if url:
        return RunningUi(url).launch(store, job, config or {}, run_tags)
    (run_id,) = _launch_detached(store.home, {"job": job, "config": config or {}, "tags": run_tags})
    return run_id


def run_now(store: Store, schedule: str) -> tuple[str, ...]:
    """Launch the runs that a schedule would request now, as `launch` does, and return their ids.

    Without a UI one process runs them in turn, and Dagster knows each once it begins.

    Raises:
        ValueError: if there is no such schedule, or it would skip now.
        StorageError: as `launch`.
    """
    schedules = scheduled_jobs(store.home)
    if schedule not in schedules:
        raise ValueError(f"a schedule must be one of {', '.join(schedules)}, but is {schedule!r}; name one")
    _require_may_run(store, schedules[schedule])
    return _launch_detached(store.home, {"schedule": schedule})


def _require_may_run(store: Store, job: str) -> None:
    if job not in UNHALTED_JOBS:
        require_no_halt(store)


class RunningUi:
    """Client of a running UI, by GraphQL."""

    def __init__(self, url: str) -> None:
        self._url, self._opener = url, build_opener(ProxyHandler({}))  # no proxy reaches this machine

    def launch(
        self, store: Store, job: str, config: Mapping[str, Any], tags: Mapping[str, str], assets: Sequence[str] = ()
    ) -> str:
        """Queue a run with the tags of its job, by which the limits hold; see `launch`.

        Only the named assets of the job are materialized, if any are.
        """
        nodes = self._ask(JOBS)["nodes"]
        _require_job(job, [row["name"] for node in nodes for row in node["jobs"]])
        node, job_row = next((node, row) for node in nodes for row in node["jobs"] if row["name"] == job)
        repository = {"repositoryName": node["name"], "repositoryLocationName": node["location"]["name"]}
        selector: dict[str, Any] = {**repository, "pipelineName": job}
        partition_sets = self._ask(PARTITIONS, repository=repository, job=job)["results"]
        keys = [[row["name"] for row in keys_of["partitionsOrError"]["results"]] for keys_of in partition_sets]
        require_partition(job, keys[0] if keys else None, tags, assets)
        errors = self._ask(VALIDATE, job=selector, config=config).get("errors")
        if errors:
            raise config_error(job, errors[0]["message"])
        require_search(store, job, config)
        job_tags = {tag["key"]: tag["value"] for tag in job_row["runTags"]}
        run_tags = [{"key": key, "value": value} for key, value in {**job_tags, **tags}.items()]
        if assets:
            selector["assetSelection"] = [{"path": asset.split("/")} for asset in assets]
        execution = {"selector": selector, "mode": "default", "runConfigData": config}
        return self._ask(LAUNCH, run={**execution, "executionMetadata": {"tags": run_tags}})["run"]["runId"]

    def terminate(self, run_id: str) -> None:
        """Terminate a run, as the button of the UI does.

        Raises:
            StorageError: if the UI refuses or fails.
        """
        self._ask(TERMINATE, id=run_id)

    def schedules(self) -> dict[str, dict[str, Any]]:
        """Schedules by name, with their status and next tick."""
        return {row["name"]: row for node in self._ask(SCHEDULES)["nodes"] for row in node["schedules"]}

    def _ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Answer to the last operation of a query.

        Raises:
            StorageError: if there is none, it is an error, or the daemon is not healthy.
        """
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = Request(f"{self._url}/graphql", body, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS) as response:
                answer = json.load(response)
        except OSError as error:
            raise UnavailableError(f"the UI on {self._url} must answer, but: {error}; try again soon") from error
        data = answer.get("data") or {"": answer["errors"][0]}
        daemons = data.pop("instance", {"daemonHealth": {"allDaemonStatuses": []}})["daemonHealth"]
        if any(row["required"] and not row["healthy"] for row in daemons["allDaemonStatuses"]):
            raise UnavailableError(
                f"the daemon of the UI on {self._url} must be healthy to start runs, but is not; try again soon, or "
                "start the UI again"
            )
        (content,) = data.values()
        if "message" in content:
            raise StorageError(f"the UI on {self._url} refuses: {one_line(content['message'])}")
        return content


def _launch_detached(home: Home, request: Mapping[str, Any]) -> tuple[str, ...]:
    """Let a detached process launch a job or what a schedule requests; return the id of the run once it exists."""
    run_id = str(uuid4())
    log = home.warehouse / "launches" / f"{run_id}.log"  # Dagster's folder is made whole, or not at all
    log.parent.mkdir(parents=True, exist_ok=True)
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", __name__, str(home.root), run_id, str(write_end), json.dumps(request)]
    with os.fdopen(read_end) as answers, log.open("w") as output:
        try:
            subprocess.run(
                command,
                check=True,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name != "NVTRADER_TOKEN"},
                pass_fds=[write_end],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        finally:
            os.close(write_end)
        answer = answers.readline().strip()
    if answer.startswith(STARTED):
        return tuple(answer.removeprefix(STARTED).split(","))
    if not answer:
        raise UnavailableError(f"a run must begin in a process of its own, but that ended before; see {log}")
    log.unlink()
    raise ValueError(answer)


def main() -> None:
    """Launch the requested run in a fork that no process waits for, and answer with its id or why there is none."""
    if os.fork():
        os._exit(0)
    from nvtrader_pipelines.orchestration.instance import open_instance

    root, run_id, descriptor, request = sys.argv[1:]

    def answer(line: str) -> None:
        with suppress(BrokenPipeError):  # the launching process has its answer, or is dead
            os.write(int(descriptor), f"{line}\n".encode())

    store = Store(Home(Path(root)))
    with open_instance(store) as instance:
        try:
            requests = _requested(store, instance, json.loads(request))
            url = running_url(store.home.dagster)
            if url:
                ui = RunningUi(url)
                answer(STARTED + ",".join(ui.launch(store, *run) for run in requests))
                return
            jobs = [_valid_job(store, instance, *run) for run in requests]
        except (ValueError, StorageError) as error:
            answer(" ".join(str(error).split()))
            return
        run_ids = [run_id, *(str(uuid4()) for _ in jobs[1:])]
        instance.add_event_listener(run_id, lambda _event: answer(STARTED + ",".join(run_ids)))
        for own_id, job, (_, config, tags, assets) in zip(run_ids, jobs, requests, strict=True):
            if not _execute(store, instance, own_id, job, config, tags, assets):
                return


def _execute(  # noqa: PLR0913 - a run's own arguments
    store: Store,
    instance: "dg.DagsterInstance",
    run_id: str,
    job: "dg.JobDefinition",
    config: Mapping[str, Any],
    tags: Mapping[str, str],
    assets: Sequence[str] = (),
) -> bool:
    """Run a job, or some of its assets, as a UI with its sensors would; return whether nothing interrupted it."""
    import dagster as dg

    from nvtrader_pipelines.orchestration.instance import let_waiting_steps_sleep, process_tag
    from nvtrader_pipelines.storage.views.publishing import publish

    let_waiting_steps_sleep()
    try:
        finished = job.execute_in_process(
            instance=instance,
            run_id=run_id,
            partition_key=tags.get(PARTITION),
            tags={**process_tag(), **tags},
            run_config=config,
            raise_on_error=False,
            asset_selection=[dg.AssetKey.from_user_string(asset) for asset in assets] or None,
        )
    finally:
        store.ledger.close_interrupted([run_id])
    if finished.success:
        publish(store)
    run = instance.get_run_by_id(run_id)
    return run is not None and INTERRUPTIONS.isdisjoint((run.status.value, run.tags.get(FAILURE_REASON)))


def _valid_job(
    store: Store,
    instance: "dg.DagsterInstance",
    job: str,
    config: Mapping[str, Any],
    tags: Mapping[str, str],
    assets: Sequence[str] = (),
) -> "dg.JobDefinition":
    """Return a job by its name, if it can run with a configuration and tags; raises as `launch`."""
    from nvtrader_pipelines.orchestration.definitions import build_defs

    jobs = {job_def.name: job_def for job_def in build_defs(home=store.home).resolve_all_job_defs()}
    _require_job(job, list(jobs))
    require_partition(job, partition_keys(jobs[job], instance), tags, assets)
    require_config(store, jobs[job], config)
    return jobs[job]


def _requested(
    store: Store, instance: "dg.DagsterInstance", request: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any], Mapping[str, str], Sequence[str]]]:
    """Jobs, configurations, tags and chosen assets of a request, which may name a schedule that requests them.

    Raises:
        ValueError: if the schedule would skip now.
    """
    if "schedule" not in request:
        return [(request["job"], request["config"], request["tags"], ())]
    import dagster as dg

    from nvtrader_pipelines.orchestration.resources import DeskResource, StoreResource
    from nvtrader_pipelines.orchestration.schedules import schedules_of

    schedule = next(schedule for schedule in schedules_of(store.home) if schedule.name == request["schedule"])
    with dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=datetime.now(NEW_YORK.time_zone),
        resources={"store": StoreResource(root=str(store.home.root)), "desk": DeskResource()},
    ) as context:
        evaluated = schedule(context)
        is_single = isinstance(evaluated, dg.RunRequest | dg.SkipReason)
        results = [evaluated] if is_single else list(cast("Iterable[Any]", evaluated))
    runs = [result for result in results if isinstance(result, dg.RunRequest)]
    if not runs:
        reasons = "; ".join(str(result.skip_message) for result in results if isinstance(result, dg.SkipReason))
        raise ValueError(f"the schedule {schedule.name} would skip now: {reasons or 'nothing is due'}")
    return [
        (
            schedule.job_name,
            run.run_config or {},
            {**run.tags, **({PARTITION: run.partition_key} if run.partition_key else {}), RUN_NOW: schedule.name},
            [key.to_user_string() for key in run.asset_selection or []],
        )
        for run in runs
    ]


def _require_job(job: str, jobs: Sequence[str]) -> None:
    if job not in jobs:
        names = sorted(name for name in jobs if not name.startswith("__"))  # Dagster's own
        raise ValueError(f"a job must be one of {', '.join(names)}, but is {job!r}{suggest(job, names)}")


if __name__ == "__main__":
    main()
