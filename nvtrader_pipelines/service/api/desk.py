"""Routes of the desk: environment, plans, accounts, scoreboard, schedules and kill switch."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field

from nvtrader_pipelines.components.text import Reason
from nvtrader_pipelines.desk.account_access import DEFAULT_ACCOUNT, read_account
from nvtrader_pipelines.desk.halt import resume, stop_trading
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.plan_decision import Approve, Equal, Override, PlanDecision, Reject, Skip
from nvtrader_pipelines.execution.plan_records import PlanRecord, plan_records
from nvtrader_pipelines.orchestration.job_states import ScheduleState, scheduled_jobs
from nvtrader_pipelines.orchestration.launching import run_now
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.api.body import Body
from nvtrader_pipelines.service.api.context import Context, Shared, router
from nvtrader_pipelines.service.api.problems import NotFound, conflict, not_found
from nvtrader_pipelines.service.documents.account_facts import AccountSnapshot
from nvtrader_pipelines.service.documents.document import Document, rows_of
from nvtrader_pipelines.service.documents.plan_facts import PlanDocument, plan_document
from nvtrader_pipelines.service.documents.plan_review import PlanReview, read_plan_review
from nvtrader_pipelines.service.documents.scoreboard_facts import RankedEntrant, read_ranking
from nvtrader_pipelines.service.operations import accounts
from nvtrader_pipelines.service.operations import plans as plan_operations

routes = router("desk", "/api")
PlanId = Annotated[str, Path(max_length=64, pattern=r"^[0-9A-Za-z-]+$")]


class KillSwitchRequest(Body):
    """Whether trading is stopped, and why."""

    engaged: bool
    reason: Reason


class LaunchedRuns(Document):
    """Runs that a schedule launched."""

    task_ids: tuple[str, ...]  # without a Dagster UI they run in turn, and each is known once it begins


class KillSwitchState(Document):
    """State of the kill switch."""

    halted: str | None  # why trading is stopped; null if it is not
    message: str = ""  # what the request did
    cancelled: tuple[str, ...] = ()  # orders at brokers
    still_open: dict[str, str] = Field(default_factory=dict)  # accounts where orders may be open, with the reason


@routes.get("/env")
def environment() -> EnvSpec:
    """Environment that trains unless an experiment says otherwise."""
    return EnvSpec()


@routes.get("/plans", response_model=list[PlanDocument])
def plans(shared: Shared, account: Annotated[str, Field(max_length=63)] | None = None) -> Any:
    """Rebalance plans with findings and status, newest first."""
    if account is not None:
        with not_found():
            read_account(shared.home, account)

    def read() -> object:
        records = plan_records(shared.store.audit.events(account))
        return [plan_document(record) for record in reversed(records.values())]

    return shared.answer("plans", read, shared.desk, of=(account,))


@routes.get("/plans/{plan_id}", response_model=PlanReview)
def plan(shared: Shared, plan_id: PlanId) -> Any:
    """Rebalance plan with its orders in money, and the record of its policy beside the baseline's."""
    sources = shared.desk, shared.runs
    return shared.answer(
        "plan", lambda: read_plan_review(shared.store, find_record(shared, plan_id)), *sources, of=(plan_id,)
    )


@routes.post("/plans/{plan_id}/decision")
def decide(shared: Shared, plan_id: PlanId, decision: PlanDecision) -> AuditEvent:
    """Approve, override, reject or skip a plan, or say that it is as good as the holdings.

    The address may name the kind of the decision instead, as in `/api/plans/{plan_id}/approve`.
    """
    find_record(shared, plan_id)
    return plan_operations.decide(shared.opened, plan_id, decision)


@routes.post("/plans/{plan_id}/approve")
def approve(shared: Shared, plan_id: PlanId, body: Approve | None = None) -> AuditEvent:
    """Approve a waiting plan despite its soft findings."""
    return decide(shared, plan_id, body or Approve())


@routes.post("/plans/{plan_id}/override")
def override(shared: Shared, plan_id: PlanId, body: Override) -> AuditEvent:
    """Override a plan: keep what is held, or make a plan of edited weights, whose id is in the detail as `edited`."""
    return decide(shared, plan_id, body)


@routes.post("/plans/{plan_id}/reject")
def reject(shared: Shared, plan_id: PlanId, body: Reject) -> AuditEvent:
    """Reject a plan: place no order."""
    return decide(shared, plan_id, body)


@routes.post("/plans/{plan_id}/skip")
def skip(shared: Shared, plan_id: PlanId, body: Skip | None = None) -> AuditEvent:
    """Record that a person does not judge a plan, which goes on as before."""
    return decide(shared, plan_id, body or Skip())


@routes.post("/plans/{plan_id}/equal")
def equal(shared: Shared, plan_id: PlanId, body: Equal | None = None) -> AuditEvent:
    """Record that a plan is as good as the holdings to a person; it goes on as before."""
    return decide(shared, plan_id, body or Equal())


def find_record(shared: Context, plan_id: str) -> PlanRecord:
    """Find a plan by its whole id.

    Raises:
        NotFound: if there is no such plan.
    """
    record = plan_records(shared.store.audit.events()).get(plan_id)
    if record is None:
        raise NotFound(f"there is no plan {plan_id}; list them with GET /api/plans")
    return record


@routes.get("/portfolio", response_model=AccountSnapshot)
def portfolio(shared: Shared, account: Annotated[str, Field(max_length=63)] = DEFAULT_ACCOUNT) -> Any:
    """State of an account: positions, cash, equity, last plan, waiting plans."""
    with not_found():
        read_account(shared.home, account)

    def read() -> object:
        return accounts.show_account(shared.opened, account).model_dump(mode="json", exclude_unset=True)

    sources = shared.desk, shared.runs, shared.experiments, (shared.home.policies,)
    return shared.answer("portfolio", read, *sources, of=(account,))


@routes.get("/scoreboard", response_model=tuple[RankedEntrant, ...])
def scoreboard(shared: Shared) -> Any:
    """All entrants as scored last, ranked within contests."""

    def read() -> object:
        with not_found():
            return rows_of(RankedEntrant, read_ranking(shared.store))

    return shared.answer("scoreboard", read, shared.runs)


@routes.get("/scheduler")
def scheduler(shared: Shared) -> list[ScheduleState]:
    """Schedules with their last and next runs."""
    return shared.job_runs.schedules()


@routes.post("/scheduler/{name}/run", status_code=202)
def run_schedule(shared: Shared, name: Annotated[str, Path(max_length=64)]) -> LaunchedRuns:
    """Launch the runs that a schedule would launch now."""
    schedules = scheduled_jobs(shared.home)
    if name not in schedules:
        raise NotFound(f"there is no schedule {name!r}; there are {', '.join(schedules)}")
    with conflict():
        return LaunchedRuns(task_ids=run_now(shared.store, name))


@routes.get("/kill-switch")
def kill_switch(shared: Shared) -> KillSwitchState:
    """Whether trading is stopped, and why."""
    return KillSwitchState(halted=shared.store.switch.halt_reason())


@routes.post("/kill-switch")
def set_kill_switch(shared: Shared, body: KillSwitchRequest) -> KillSwitchState:
    """Stop trading and runs on every account, or let them resume."""
    return engage(shared, body.reason) if body.engaged else release(shared, body.reason)


def engage(shared: Context, reason: str) -> KillSwitchState:
    """Stop trading and cancel open orders at brokers."""
    outcome = stop_trading(shared.store, shared.by, reason, now)
    if outcome.failure is not None:
        raise outcome.failure
    return KillSwitchState(
        halted=shared.store.switch.halt_reason(),
        message=outcome.message,
        cancelled=tuple(outcome.cancelled),
        still_open=outcome.still_open,
    )


def release(shared: Context, reason: str) -> KillSwitchState:
    """Release the kill switch."""
    message = resume(shared.store, shared.by, reason, now)
    return KillSwitchState(halted=shared.store.switch.halt_reason(), message=message)
