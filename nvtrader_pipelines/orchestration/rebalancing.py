"""The steps of a rebalance as Dagster takes them: the desk's own, with what a person would otherwise acknowledge."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime

import dagster as dg

from nvtrader_pipelines.desk.account_access import AccountInUse
from nvtrader_pipelines.desk.account_holds import failing_checks
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.desk.rebalancing import market_end
from nvtrader_pipelines.evaluation.steps import drain
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.orchestration.retries import tried_again
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

SESSION = "nvtrader/session"  # the tag of a scheduled rebalance: the session after whose close it comes
_MOST_WAITS, BETWEEN_WAITS = 12, 300.0  # for bars, seconds: an hour, longer than the ingest of a day


def executed(desk: Desk, report: Callable[[Progress], None], *, acknowledge: bool) -> None:
    """Go whole through the due sessions before the last, then place what waits for the last.

    A broker that does not answer is asked again by the step's retry, which places nothing twice. The first session
    after which the account differs is the last one: its check, which comes next, says so and ends the run.

    Raises:
        NotReconciled: if the account differed before.
        ExecutionError: if the run was told to acknowledge soft findings of an account at a broker.
    """
    if acknowledge:
        desk.require_simulated("has its soft findings acknowledged by the run")
    with asked_again():
        desk.require_reconciled()
        due = desk.due()
        if len(due) > 1:
            with suppress(NotReconciled):
                drain(desk.trade(last=due[-2], acknowledge=acknowledge), report)
        if len(due) <= 1 or desk.due() == due[-1:]:
            desk.execute()


def said_since(desk: Desk, instance: dg.DagsterInstance, run_id: str) -> list[AuditEvent]:
    """What the audit says of an account since a run began, whose step may have been tried before."""
    (record,) = instance.get_run_records(dg.RunsFilter(run_ids=[run_id]))
    began = datetime.fromtimestamp(record.start_time or record.create_timestamp.timestamp(), UTC)
    events = desk.store.audit.events()
    return [event for event in events if event.account == desk.account and event.at >= began]


def cleared(desk: Desk, *, acknowledge: bool) -> None:
    """Have compliance look at the plan, and acknowledge its soft findings where the run was told to."""
    with asked_again():  # at a market, what is cleared is placed at once
        desk.clear()
        plans = desk.plans()
        if acknowledge and len(plans) and plans["status"][0] == "waiting":
            reason = "the run was told to acknowledge soft findings"
            desk.approve(plans["plan_id"][0], by="dagster", reason=reason)


@contextmanager
def asked_again() -> Iterator[None]:
    """Let Dagster try the step again where the broker did not answer, whoever says so, or another has the account."""
    with tried_again(BrokerTimeout, AccountInUse):
        try:
            yield
        except ExecutionError as error:
            if isinstance(error.__cause__, BrokerTimeout):
                raise error.__cause__ from error
            raise


def require_bars(store: Store, session: str | None) -> None:
    """Wait for the bars of the session after which a rebalance comes; without one it goes as far as they do.

    The run that ingests them may have begun together with this one.

    Raises:
        dagster.RetryRequested: from an error that names both sessions; for an hour, then the step fails.
    """
    active = read_active(store)
    if session is None or active is None:
        return
    source, ends = market_end(store, active)
    if ends is None or ends < date.fromisoformat(session):
        missing = ExecutionError(
            f"the rebalance of {session} needs the bars of that session, but the market {source} ends on {ends}; "
            "deliver the bars, run the market job, and launch the rebalance again: it catches up"
        )
        raise dg.RetryRequested(_MOST_WAITS, BETWEEN_WAITS) from missing


def require_passed(home: Home, account: str) -> None:
    """Refuse to trade an account after a blocking check of its rows that failed or never ended.

    Raises:
        dagster.Failure: naming the checks; they are evaluated again with their assets, or alone from the UI.
    """
    if checks := failing_checks(home, account):
        raise dg.Failure(
            f"account {account} is not traded: {', '.join(checks)} did not pass when last evaluated, or came to no "
            "end; mend what it found and execute the check again",
            allow_retries=False,
        )
