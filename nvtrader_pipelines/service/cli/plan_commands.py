"""`nvtrader plans`: list and show rebalance plans; approve, override or reject one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.options import Reason, current_user
from nvtrader_pipelines.service.cli.output import Format, print_line, write_json, write_rows
from nvtrader_pipelines.service.open_home import open_store
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.execution.audit import AuditEvent

app = typer.Typer(name="plans", help="Rebalance plans: targets, compliance findings, and your decisions on them.")
Plan = Annotated[str, typer.Argument(metavar="PLAN", help="Id of a plan, or its beginning.")]
AccountFilter = Annotated[str | None, typer.Option("--account", help="Account; default: all accounts.")]
Waiting = Annotated[bool, typer.Option("--waiting", help="Only plans that wait for a person.")]
RequiredReason = Annotated[str, typer.Option("--reason", help="Why; recorded in the audit and in the preference data.")]


@command(
    app.callback,
    "nvtrader plans",
    "nvtrader plans --waiting --account paper",
    "nvtrader plans show 3f2a",
    invoke_without_command=True,
)
@command(app.command, "nvtrader plans list", "nvtrader plans list --account paper --json", name="list")
def list_(*, account: AccountFilter = None, waiting: Waiting = False, form: Format) -> None:
    """List all plans, newest first, and sessions that `nvtrader halt` left without one.

    A table begins with the plans that wait for you, and ends with the ranges of halted sessions.
    """
    from nvtrader_pipelines.service.cli.pages.plan_pages import print_plans
    from nvtrader_pipelines.service.documents.plan_facts import ListedPlan, list_plans

    rows = list_plans(_events(open_store(), account))
    if waiting:
        rows = rows.filter(status="waiting")
    if form is not Format.TABLE:
        write_rows(rows, form, model=ListedPlan)
    elif rows.is_empty():
        print_line("no plan waits for you" if waiting else "no plan yet: nvtrader trade", "dim")
    else:
        print_plans(rows)


@command(app.command, "nvtrader plans show 3f2a")
def show(plan: Plan, *, as_json: bool) -> None:
    """Show a plan: its findings with figure and bound, and the weights after each stage."""
    from nvtrader_pipelines.service.cli.pages.plan_pages import print_plan
    from nvtrader_pipelines.service.documents.plan_facts import find_plan, plan_document

    record = find_plan(open_store(), plan)
    if as_json:
        write_json(plan_document(record).model_dump(mode="json"))
    else:
        print_plan(record)


@command(app.command, 'nvtrader plans approve 3f2a --reason "the first buys"')
def approve(plan: Plan, reason: Reason = "", *, as_json: bool) -> None:
    """Approve a waiting plan despite its soft findings; it is traded at its fill session."""
    _record_decision("approve", plan, reason, as_json=as_json)


@command(app.command, 'nvtrader plans override 3f2a --reason "earnings tomorrow"')
def override(plan: Plan, reason: RequiredReason, *, as_json: bool) -> None:
    """Override a plan: keep the current holdings, place no order."""
    _record_decision("override", plan, reason, as_json=as_json)


@command(app.command, 'nvtrader plans reject 3f2a --reason "a stale price"')
def reject(plan: Plan, reason: RequiredReason, *, as_json: bool) -> None:
    """Reject a plan: place no order."""
    _record_decision("reject", plan, reason, as_json=as_json)


def _record_decision(decision: str, plan_text: str, reason: str, *, as_json: bool) -> None:
    """Record a person's decision on a plan and print it."""
    from nvtrader_pipelines.desk.desk import act_on_account
    from nvtrader_pipelines.service.documents.plan_facts import find_plan

    store, by = open_store(), current_user()
    plan = find_plan(store, plan_text).plan
    event = act_on_account(store, plan.account, by, lambda desk: getattr(desk, decision)(plan.plan_id, by, reason))
    if as_json:
        write_json(event.model_dump(mode="json"))
        return
    message = f"plan {plan.plan_id} of {plan.session} is {event.kind} by {by}"
    print_line(f"{message}: {reason}" if reason else message)


def _events(store: Store, account: str | None) -> "Sequence[AuditEvent]":
    """Read the audit events of an account, or of all accounts.

    Raises:
        StorageError: if the account does not exist.
    """
    from nvtrader_pipelines.desk.account_access import read_account

    if account is not None:
        read_account(store.home, account)
    return store.audit.events(account)
