"""Routes of the desk: environment, decisions on plans, schedules and kill switch."""

from typing import Annotated, Any

from fastapi import Path

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.components.text import Reason
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.plan_decision import Approve, Equal, Override, Reject, Skip
from nvtrader_pipelines.orchestration.job_states import ScheduleState, scheduled_jobs
from nvtrader_pipelines.orchestration.launching import run_now
from nvtrader_pipelines.service.api.answers import Body
from nvtrader_pipelines.service.api.context import Shared, router
from nvtrader_pipelines.service.api.problems import refusing
from nvtrader_pipelines.service.documents.halt_facts import HaltDocument
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.service.operations.plans import PlanId, Plans
from nvtrader_pipelines.storage.errors import ConflictError, NotFoundError

routes = router("desk", "/api")


class KillSwitchRequest(Body):
    """Whether trading is stopped, and why."""

    engaged: bool
    reason: Reason


class LaunchedRuns(Document):
    """Runs that a schedule launched."""

    task_ids: tuple[str, ...]  # without a Dagster UI they run in turn, and each is known once it begins


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
        raise NotFoundError(f"there is no schedule {name!r}; there are {', '.join(schedules)}")
    with refusing(ConflictError):
        return LaunchedRuns(task_ids=run_now(shared.store, name))


@routes.get("/kill-switch")
def kill_switch(shared: Shared) -> HaltDocument:
    """Whether trading is stopped, and why."""
    return HaltDocument.of_switch(shared.store.switch)


@routes.post("/kill-switch")
def set_kill_switch(shared: Shared, body: KillSwitchRequest) -> HaltDocument:
    """Stop trading and runs on every account, or let them resume."""
    home = WholeHome(shared.opened)
    return home.halt(reason=body.reason) if body.engaged else home.resume(reason=body.reason)
