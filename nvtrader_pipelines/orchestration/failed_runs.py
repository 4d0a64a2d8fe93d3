"""Runs and asset checks that failed, as states that need a person."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import dagster as dg

from nvtrader_pipelines.notifications.notification import CurrentStates, Notification, text_digest
from nvtrader_pipelines.orchestration.portfolio_checks import PORTFOLIO_CHECKS
from nvtrader_pipelines.orchestration.table_checks import CHECKS, PARTITION_TAG

MAX_AGE = timedelta(days=7)  # older failures are not sent
MAX_MESSAGE = 1000  # characters of an error
CHECK_KEYS = [key for definition in (*CHECKS, *PORTFOLIO_CHECKS) for key in definition.check_keys]


def run_states(instance: dg.DagsterInstance, at: datetime) -> CurrentStates:
    """Jobs and partitions whose last run failed, and checks that failed in a successful run.

    A failed run names its failed checks, so these are no states of their own. Checks that only warn are left out.
    """
    return {
        "failed_run": [_failed_run(instance, run) for run in _failed_runs(instance, at - MAX_AGE)],
        "failed_check": list(_failed_checks(instance)),
    }


def _failed_runs(instance: dg.DagsterInstance, since: datetime) -> Iterator[dg.DagsterRun]:
    ended = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
    seen = set[tuple[str, str | None]]()
    for run in instance.get_runs(dg.RunsFilter(statuses=ended, updated_after=since)):  # newest first
        key = run.job_name, run.tags.get(PARTITION_TAG)
        if key not in seen and not run.is_success and not run.is_complete_and_waiting_to_retry:
            yield run
        seen.add(key)


def _failed_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Notification:
    name = " of ".join(filter(None, (run.job_name, run.tags.get(PARTITION_TAG))))
    reasons = "\n".join(_failure_reasons(instance, run.run_id)) or "its process ended without an error of a step."
    body = (
        f"The run {run.run_id} of {name} failed:\n{reasons}\n"
        "`nvtrader ui` shows its log under Runs. Correct the cause, then `nvtrader materialize` or Re-execute."
    )
    return Notification("failed_run", f"{name}:{text_digest(reasons)}", f"the run of {name} failed", body)


def _failure_reasons(instance: dg.DagsterInstance, run_id: str) -> Iterator[str]:
    types = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.ASSET_CHECK_EVALUATION}
    for entry in instance.all_logs(run_id, of_type=types):
        event = entry.get_dagster_event()
        if event.is_step_failure:
            error = event.step_failure_data.error
            cause = error.cause if error and error.cause else error
            if cause and not (cause.cls_name or "").startswith("DagsterAssetCheckFailed"):
                yield f"- {event.step_key}: {' '.join(cause.message.split())[:MAX_MESSAGE]}"
        else:
            check = event.asset_check_evaluation_data
            if _is_error(check):
                yield f"- {_describe(check)}"


def _failed_checks(instance: dg.DagsterInstance) -> Iterator[Notification]:
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(CHECK_KEYS)
    for key, record in records.items():
        event, run = record.event and record.event.get_dagster_event(), instance.get_run_by_id(record.run_id)
        if event is None or event.event_type != dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            continue  # planned, but its run did not reach it
        check = event.asset_check_evaluation_data
        if not _is_error(check) or (run is not None and run.is_failure):
            continue
        asset = key.asset_key.to_user_string()
        body = (
            f"{_describe(check)}, in the run {record.run_id}.\n"
            f"`nvtrader ui` shows the rows under Catalog, {asset}, Checks. Correct the data, then "
            "`nvtrader materialize`."
        )
        yield Notification("failed_check", f"{asset}:{key.name}", f"the check {key.name} of {asset} failed", body)


def _is_error(check: dg.AssetCheckEvaluation) -> bool:
    return not check.passed and check.severity == dg.AssetCheckSeverity.ERROR


def _describe(check: dg.AssetCheckEvaluation) -> str:
    broken = check.metadata.get("broken")
    count = f": {broken.value} rows violate it" if broken else ""
    return f"the check {check.check_name} of {check.asset_key.to_user_string()} failed{count}"
