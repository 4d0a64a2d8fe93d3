"""The steps of a rebalance as Dagster takes them: the desk's own, with what a person would otherwise acknowledge."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date

import dagster as dg
import polars as pl
from dagster import AssetCheckKey
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.orchestration.retries import tried_again
from nvtrader_pipelines.storage.active_policy import read_active
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.execution import followed
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.paper_backtest import account_backtest, deployment_of
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, MARKET_PANEL
from nvtrader_pipelines.storage.trading import Desk
from nvtrader_pipelines.storage.warehouse import Warehouse

SESSION = "nvtrader/session"  # the tag of a scheduled rebalance: the session after whose close it comes
ACCOUNT = "account"  # in the metadata of a check: whose rows it looked at
LOOKED_TO = "looked_to"  # in the metadata of a check of sessions: the last one it looked at
_CURVE = 2  # sessions that make a line
_RECENT = 20  # evaluations of a check among which the last of an account is looked for


def executed(desk: Desk, report: Callable[[Progress], None], *, acknowledge: bool) -> list[AuditEvent]:
    """Go whole through the due sessions before the last, then place what waits for the last; what was said of both.

    A broker that does not answer is asked again by the step's retry, which places nothing twice.
    """
    log, due = JsonlAudit(desk.lake.home), desk.due()
    known = len(log.rows())
    with _asked_again():
        if len(due) > 1:
            followed(desk.trade(last=due[-2], acknowledge=acknowledge), report)
        desk.execute()
    return [row.event for row in log.rows()[known:] if row.event.account == desk.account]


def cleared(desk: Desk, *, acknowledge: bool) -> None:
    """Have compliance look at the plan, and acknowledge its soft findings where the run was told to."""
    with _asked_again():  # at a market, what is cleared is placed at once
        desk.clear()
    plans = desk.plans()
    if acknowledge and len(plans) and plans["status"][0] == "waiting":
        reason = "the run was told to acknowledge soft findings"
        desk.approve(plans["plan_id"][0], by="dagster", reason=reason)


@contextmanager
def _asked_again() -> Iterator[None]:
    """Let Dagster try the step again where the broker did not answer, whoever says so."""
    with tried_again(BrokerTimeout):
        try:
            yield
        except ExecutionError as error:
            if isinstance(error.__cause__, BrokerTimeout):
                raise error.__cause__ from error
            raise


def require_bars(lake: Warehouse, session: str | None) -> None:
    """Refuse a rebalance that comes after a session whose bars are not there; without one it goes as far as they do.

    Raises:
        dagster.Failure: naming both sessions.
    """
    active = read_active(lake.home)
    if session is None or active is None:
        return
    source = Ledger.open(lake.home).read(active.partition_key).market.source
    ends = lake.read(MARKET_PANEL).filter(pl.col("source") == source)["last_session"].max()
    if ends != date.fromisoformat(session):
        raise dg.Failure(
            f"the rebalance of {session} needs the bars of that session, but the market {source} ends on {ends}; "
            "deliver the bars, run the market job, and launch the rebalance again: it catches up",
            allow_retries=False,
        )


def rivals(lake: Warehouse, states: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Equity of the back-test of the same sessions, and of 1/N where the policy's own tests have it.

    An account that several policies have traded has no back-test of its own.
    """
    traded = states.select("run_id", "policy", "spec_hash").unique()
    if len(states) < _CURVE or len(traded) != 1:
        return {}
    run_id, policy, spec_hash = traded.row(0)
    first, last = states["session"][0], states["session"][-1]
    where = {"spec_hash": [spec_hash], "run_id": [run_id]}
    curves = lake.read(EQUITY_CURVES, where, ["policy", "session", "equity"])
    return {
        "back-test": account_backtest(deployment_of(lake, run_id, policy), first, last),
        "equal weight": curves.filter(pl.col("policy") == "equal_weight"),
    }


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
    last = next(_evaluations(instance, key, account), None)
    return last is None or last[0] is Status.SUCCEEDED


def looked_to(instance: dg.DagsterInstance, key: AssetCheckKey, account: str) -> date | None:
    """The last session that a check of an account's sessions has looked at; None where it never did."""
    last = next(_evaluations(instance, key, account), None)
    session = last[1].get(LOOKED_TO) if last else None
    return None if session is None else date.fromisoformat(str(session.value))


def _evaluations(
    instance: dg.DagsterInstance, key: AssetCheckKey, account: str
) -> Iterator[tuple[Status, Mapping[str, dg.MetadataValue]]]:
    """Evaluations of a check that ended, the latest first, of this account or of all."""
    ended = {Status.SUCCEEDED, Status.FAILED}
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=_RECENT, status=ended):
        event = record.event.dagster_event if record.event else None
        metadata = event.asset_check_evaluation_data.metadata if event else {}
        if ACCOUNT not in metadata or metadata[ACCOUNT].value == account:
            yield record.status, metadata
