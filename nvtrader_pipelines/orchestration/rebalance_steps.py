"""Steps of a scheduled rebalance: the desk's steps with Dagster's retries."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime

import dagster as dg

from nvtrader_pipelines.desk.account_access import AccountInUse
from nvtrader_pipelines.desk.account_checks import failing_checks
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.desk.rebalancing import market_end
from nvtrader_pipelines.desk.traded_policy import bot_of, read_traded
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled
from nvtrader_pipelines.execution.plan_decision import Approve
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store

SESSION = "nvtrader/session"  # tag of a scheduled rebalance: the session after whose close it runs
BOT = "nvtrader/bot"  # tag of a rebalance by a bot: its name
MAX_WAITS, BAR_WAIT_SECONDS = 12, 300.0  # seconds; an hour in all, longer than the ingest of a day
MAX_RETRIES, RETRY_WAIT_SECONDS = 2, 5.0


def execute_due_sessions(desk: Desk, report: Callable[[Progress], None], *, acknowledge: bool) -> None:
    """Complete all due sessions but the last, then place the orders of the last.

    A broker timeout makes Dagster retry the step, which places no order twice. Trading stops at the first session
    after which holdings differ from expected ones; the reconciliation check that follows then ends the run.

    Raises:
        NotReconciled: if the account had differences before.
        ExecutionError: if soft findings would be acknowledged on an account at a broker.
    """
    if acknowledge:
        desk.require_simulated("has its soft findings acknowledged by the run")
    with retry_when_unavailable():
        desk.require_reconciled()
        due = desk.due()
        if len(due) > 1:
            with suppress(NotReconciled):
                drain(desk.trade(last=due[-2], acknowledge=acknowledge), report)
        if len(due) <= 1 or desk.due() == due[-1:]:
            desk.execute()


def audit_events_since(desk: Desk, instance: dg.DagsterInstance, run_id: str) -> list[AuditEvent]:
    """Audit events of an account since a run began, earlier attempts of the step included."""
    (record,) = instance.get_run_records(dg.RunsFilter(run_ids=[run_id]))
    began = datetime.fromtimestamp(record.start_time or record.create_timestamp.timestamp(), UTC)
    events = desk.store.audit.events()
    return [event for event in events if event.account == desk.account and event.at >= began]


def clear_plan(desk: Desk, *, acknowledge: bool) -> None:
    """Check the plan for compliance; with `acknowledge`, approve soft findings."""
    with retry_when_unavailable():  # a live venue places a cleared plan at once
        desk.clear()
        plans = desk.plans()
        if acknowledge and len(plans) and plans["status"][0] == "waiting":
            reason = "soft findings acknowledged by the configuration"
            desk.decide(plans["plan_id"][0], Approve(reason=reason), by="dagster")


@contextmanager
def retry_when_unavailable() -> Iterator[None]:
    """Let Dagster retry the step if the broker timed out or another process uses the account."""
    with retry_on(BrokerTimeout, AccountInUse):
        try:
            yield
        except ExecutionError as error:
            if isinstance(error.__cause__, BrokerTimeout):
                raise error.__cause__ from error
            raise


def wait_for_bars(store: Store, account: str, session: str | None) -> None:
    """Let Dagster retry the step for up to an hour until the market of an account has the bars of a session.

    The ingest of those bars may run at the same time. Without a session there is nothing to wait for.

    Raises:
        dagster.RetryRequested: if the bars are missing; its cause names both sessions.
    """
    active = read_traded(store, account)
    if session is None or active is None:
        return
    source, ends = market_end(store, active)
    if ends is None or ends < date.fromisoformat(session):
        missing = ExecutionError(
            f"the rebalance of {session} needs the bars of that session, but the market {source} ends on {ends}; "
            "deliver the bars, run the market job, and launch the rebalance again: it catches up"
        )
        raise dg.RetryRequested(MAX_WAITS, BAR_WAIT_SECONDS) from missing


def require_same_bot(store: Store, account: str, name: str | None) -> None:
    """Raise if a run was requested by a bot that trades its account no more.

    Raises:
        dagster.Failure: with the bot that does.
    """
    bot = bot_of(store, account)
    if name is not None and (bot is None or bot.name != name):
        trades = f"the bot {bot.name} trades" if bot else "no bot trades"
        raise dg.Failure(f"{name} requested this run, but now {trades} the account {account}", allow_retries=False)


def require_checks_passed(desk: Desk) -> None:
    """Raise if the account's rows fail a check now, or the audit is damaged.

    Raises:
        dagster.Failure: with the names of the checks.
    """
    try:
        failing = ", ".join(failing_checks(desk))
    except StorageError as error:
        raise dg.Failure(f"{error}", allow_retries=False) from error
    if failing:
        raise dg.Failure(
            f"account {desk.account} is traded only while its rows pass their checks, but {failing} failed; execute "
            "the check in the UI to see the rows, restore the account's book or tables, and rebalance again",
            allow_retries=False,
        )


@contextmanager
def retry_on(*errors: type[Exception]) -> Iterator[None]:
    """Let Dagster retry the step after one of these errors; every other error needs a person."""
    try:
        yield
    except errors as error:
        raise dg.RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=RETRY_WAIT_SECONDS) from error
