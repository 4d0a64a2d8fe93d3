"""Routes of the desk: environment, decisions on plans, schedules and kill switch."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field

from nvtrader_pipelines.components.text import Reason
from nvtrader_pipelines.desk.halt import resume, stop_trading
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.plan_decision import Approve, Equal, Override, Reject, Skip
from nvtrader_pipelines.orchestration.job_states import ScheduleState, scheduled_jobs
from nvtrader_pipelines.orchestration.launching import run_now
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.api.body import Body
from nvtrader_pipelines.service.api.context import Context, Shared, router
from nvtrader_pipelines.service.api.problems import NotFound, conflict
from nvtrader_pipelines.service.documents.document import Document
from nvtrader_pipelines.service.operations.plans import PlanId, Plans

routes = router("desk", "/api")


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


def _decision_route(model: Any) -> None:
    """Route of one kind of decision, which its address names instead of the body."""

    def decide(shared: Shared, plan: PlanId, body: Any) -> AuditEvent:
        return Plans(shared.opened).decide(plan, body or model())

    needs_reason = model.model_fields["reason"].is_required()
    decide.__annotations__["body"] = model if needs_reason else model | None
    decide.__defaults__, decide.__doc__ = None if needs_reason else (None,), model.__doc__
    routes.post(f"/plans/{{plan}}/{model.model_fields['kind'].default}")(decide)


for decision in (Approve, Override, Reject, Skip, Equal):
    _decision_route(decision)


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
