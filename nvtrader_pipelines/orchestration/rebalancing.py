"""The steps of a rebalance as Dagster takes them: the desk's own, with what a person would otherwise acknowledge."""

from collections.abc import Callable, Sequence

import dagster as dg
from dagster import AssetCheckKey
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.storage.execution import followed
from nvtrader_pipelines.storage.trading import Desk

ACCOUNT = "account"  # in the metadata of a check: whose rows it looked at
_RECENT = 20  # evaluations of a check among which the last of an account is looked for


def executed(desk: Desk, report: Callable[[Progress], None], *, acknowledge: bool) -> list[AuditEvent]:
    """Go whole through the due sessions before the last, then place what waits for the last."""
    due = desk.due()
    if len(due) > 1:
        followed(desk.trade(last=due[-2], acknowledge=acknowledge), report)
    return desk.execute()


def cleared(desk: Desk, *, acknowledge: bool) -> list[AuditEvent]:
    """Have compliance look at the plan, and acknowledge its soft findings where the run was told to."""
    events = desk.clear()
    plans = desk.plans()
    if acknowledge and len(plans) and plans["status"][0] == "waiting":
        reason = "the run was told to acknowledge soft findings"
        events.append(desk.approve(plans["plan_id"][0], by="dagster", reason=reason))
    return events


def require_passed(instance: dg.DagsterInstance, checks: Sequence[AssetCheckKey], account: str) -> None:
    """Refuse to trade an account after a check of its rows that did not pass when it was last evaluated.

    Raises:
        dagster.Failure: naming the checks; they are evaluated again with their assets, or alone from the UI.
    """
    failed = [key for key in checks if not _passed(instance, key, account)]
    if failed:
        names = ", ".join(f"{key.name} of {key.asset_key.to_user_string()}" for key in failed)
        raise dg.Failure(
            f"account {account} is not traded: {names} did not pass when last evaluated; mend what it found and "
            "execute the check again",
            allow_retries=False,
        )


def _passed(instance: dg.DagsterInstance, key: AssetCheckKey, account: str) -> bool:
    """What the last evaluation that ended says, of this account or of all."""
    ended = {Status.SUCCEEDED, Status.FAILED}
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=_RECENT, status=ended)
    for record in records:
        event = record.event.dagster_event if record.event else None
        whose = event.asset_check_evaluation_data.metadata.get(ACCOUNT) if event else None
        if whose is None or whose.value == account:
            return record.status is Status.SUCCEEDED
    return True
