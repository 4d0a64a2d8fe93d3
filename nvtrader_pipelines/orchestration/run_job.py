"""Run of a job in this process, and the error of its first failure."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import dagster as dg

from nvtrader_pipelines.orchestration import PipelineError
from nvtrader_pipelines.orchestration.instance import process_tag
from nvtrader_pipelines.runs.interruptions import INTERRUPTED, RunHalted
from nvtrader_pipelines.storage.store import Store

INTERRUPTS = (KeyboardInterrupt.__name__, dg.DagsterExecutionInterruptedError.__name__)
HALTED = f"{RunHalted.__module__}.{RunHalted.__name__}: "  # which Dagster puts before the message of an error
OWN_ERROR = re.compile(r"^nvtrader_pipelines\.[\w.]+: ")  # the same of any error of this package


def console_config(*, quiet: bool) -> dict[str, Any]:
    """Run configuration of the console's lines; Dagster logs the steps themselves at DEBUG."""
    return {"loggers": {"console": {"config": {"level": "CRITICAL" if quiet else "DEBUG"}}}}


def run_job(
    store: Store,
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    *,
    tags: Mapping[str, str] | None = None,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """Run a job to its end, with other options of `execute_in_process`.

    Raises:
        PipelineError: if a step fails.
        RunHalted: if the kill switch ends it.
        KeyboardInterrupt: if the job is interrupted.
    """
    run_id = str(uuid4())
    try:
        result = job.execute_in_process(
            instance=instance, run_id=run_id, tags={**process_tag(), **(tags or {})}, raise_on_error=False, **options
        )
    except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt) as interrupt:  # between two steps
        store.ledger.close_interrupted([run_id], INTERRUPTED)
        raise KeyboardInterrupt from interrupt
    if not result.success:
        failure = _failure(job.name, result)  # a check or an interrupt may have ended the job between two steps
        store.ledger.close_interrupted([run_id], INTERRUPTED if isinstance(failure, KeyboardInterrupt) else None)
        raise failure
    return result


def _failure(job: str, result: dg.ExecuteInProcessResult) -> PipelineError | RunHalted | KeyboardInterrupt:
    """First failure of a job with its trace as a note; a halt and an interrupt are reported as such."""
    for event in result.filter_events(lambda event: event.is_step_failure):
        error = event.step_failure_data.error
        cause = error.cause if error and error.cause else error
        if cause and cause.cls_name in INTERRUPTS:
            return KeyboardInterrupt()
        message = cause.message.strip() if cause else "no message"
        if message.startswith(HALTED):
            return RunHalted(message.removeprefix(HALTED))
        failure = PipelineError(f"{job}: {event.step_key} failed: {OWN_ERROR.sub('', message)}")
        failure.add_note(error.to_string() if error else "")
        return failure
    return PipelineError(f"{job}: a blocking check failed; see the run {result.run_id} in `nvtrader ui`")
