"""`nvtrader plans`: list and show rebalance plans; approve, override or reject one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nvtrader_pipelines.service.cli.exit_codes import exit_on_error
from nvtrader_pipelines.service.cli.options import (
    EPILOG,
    AsJson,
    Form,
    Reason,
    Verbose,
    current_user,
    is_without_command,
    open_store,
    output_format,
)
from nvtrader_pipelines.service.cli.output import Format, print_line, wide_console, write_json, write_rows
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.execution.plan_records import PlanRecord

app = typer.Typer(help="Rebalance plans: targets, compliance findings, and your decisions on them.", epilog=EPILOG)
Plan = Annotated[str, typer.Argument(metavar="PLAN", help="Id of a plan, or its beginning.")]
AccountFilter = Annotated[str | None, typer.Option("--account", help="Account; default: all accounts.")]
RequiredReason = Annotated[str, typer.Option("--reason", help="Why; recorded in the audit and in the preference data.")]


@app.callback(invoke_without_command=True, epilog=EPILOG)
def plans(
    context: typer.Context,
    *,
    account: AccountFilter = None,
    form: Form = Format.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List all plans, newest first, or run a subcommand on one of them."""
    if is_without_command(context):
        list_(account=account, form=form, as_json=as_json, verbose=verbose)


@app.command("list", epilog=EPILOG)
def list_(
    *, account: AccountFilter = None, form: Form = Format.TABLE, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """List all plans, newest first."""
    from nvtrader_pipelines.service.cli.pages.plan_pages import plan_rows

    with exit_on_error(verbose=verbose):
        rows = plan_rows(_records(open_store(), account))
        if output_format(form, as_json=as_json) is Format.TABLE and rows.is_empty():
            wide_console().print("no plan yet: nvtrader trade", style="dim")
        else:
            write_rows(rows, output_format(form, as_json=as_json))


@app.command(epilog=EPILOG)
def show(plan: Plan, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show a plan: its findings with figure and bound, and the weights after each stage."""
    from nvtrader_pipelines.service.cli.pages.plan_pages import print_plan

    with exit_on_error(verbose=verbose):
        record = _find_plan(_records(open_store()), plan)
        if as_json:
            write_json(_document(record))
        else:
            print_plan(record)


@app.command(epilog=EPILOG)
def approve(plan: Plan, reason: Reason = "", *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Approve a waiting plan despite its soft findings; it is traded at its fill session."""
    _record_decision("approve", plan, reason, as_json=as_json, verbose=verbose)


@app.command(epilog=EPILOG)
def override(plan: Plan, reason: RequiredReason, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Override a plan: keep the current holdings, place no order."""
    _record_decision("override", plan, reason, as_json=as_json, verbose=verbose)


@app.command(epilog=EPILOG)
def reject(plan: Plan, reason: RequiredReason, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Reject a plan: place no order."""
    _record_decision("reject", plan, reason, as_json=as_json, verbose=verbose)


def _record_decision(decision: str, plan_text: str, reason: str, *, as_json: bool, verbose: bool) -> None:
    """Record a person's decision on a plan and print it."""
    from nvtrader_pipelines.desk.desk import Desk
    from nvtrader_pipelines.storage.views.publishing import publish

    with exit_on_error(verbose=verbose):
        store, by = open_store(), current_user()
        plan = _find_plan(_records(store), plan_text).plan
        desk = Desk.open(store, plan.account, by=by)
        event = getattr(desk, decision)(plan.plan_id, by, reason)
        desk.mirror()
        publish(store)
        if as_json:
            write_json(event.model_dump(mode="json"))
            return
        message = f"plan {plan.plan_id} of {plan.session} is {event.kind} by {by}"
        print_line(f"{message}: {reason}" if reason else message)


def _records(store: Store, account: str | None = None) -> "dict[str, PlanRecord]":
    """Read all plans of an account, or of all accounts, by id, oldest first.

    Raises:
        StorageError: if the account does not exist.
    """
    from nvtrader_pipelines.desk.account_access import read_account
    from nvtrader_pipelines.execution.plan_records import plan_records

    if account is not None:
        read_account(store.home, account)
    return plan_records(store.audit.events(account))


def _find_plan(records: "Mapping[str, PlanRecord]", text: str) -> "PlanRecord":
    """Find the plan whose id begins with a text.

    Raises:
        ValueError: if no plan or several plans match.
    """
    found = [record for plan_id, record in records.items() if plan_id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"no plan's id begins with {text!r}; list them with `nvtrader plans`")
    raise ValueError(f"{len(found)} plans begin with {text!r}; give more of the id (see `nvtrader plans`)")


def _document(record: "PlanRecord") -> dict[str, Any]:
    return {
        **record.plan.model_dump(mode="json"),
        "status": record.status,
        "findings": [finding.model_dump(mode="json") for finding in record.findings],
        "constructed_at": record.constructed_at,
        "cleared_at": record.cleared_at,
        "decided_by": record.decided_by,
        "decided_at": record.decided_at,
        "reason": record.reason,
        "placed": sorted(record.placed),
        "settled": sorted(record.settled),
    }
