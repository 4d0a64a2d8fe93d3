"""`nvtrader plans`: what was decided and what compliance found; a person approves, overrides or rejects."""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nvtrader_pipelines.service.cli.errors import one_sentence
from nvtrader_pipelines.service.cli.options import (
    EPILOG,
    AsJson,
    Form,
    Verbose,
    chosen_form,
    open_store,
    person,
    refuse_options_before_command,
)
from nvtrader_pipelines.service.cli.tables import Format, wide_console, write_rows
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.execution.plan_records import PlanRecord

app = typer.Typer(help="Rebalance plans: what was decided, what was found, what waits for you.", epilog=EPILOG)
Plan = Annotated[str, typer.Argument(metavar="PLAN", help="The beginning of a plan's id.")]
OfAccount = Annotated[str | None, typer.Option("--account", help="Of this account; of all if none.")]
Acknowledged = Annotated[str, typer.Option("--reason", help="Why; kept in the audit.")]
Refused = Annotated[str, typer.Option("--reason", help="Why; kept in the audit, and learned from.")]


@app.callback(invoke_without_command=True, epilog=EPILOG)
def plans(
    context: typer.Context,
    *,
    account: OfAccount = None,
    form: Form = Format.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List every plan, the newest first; or do something with one."""
    refuse_options_before_command(context)
    if context.invoked_subcommand is None:
        list_(account=account, form=form, as_json=as_json, verbose=verbose)


@app.command("list", epilog=EPILOG)
def list_(
    *, account: OfAccount = None, form: Form = Format.TABLE, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """List every plan, the newest first."""
    from nvtrader_pipelines.service.cli.pages.plan_pages import listed_plans

    with one_sentence(verbose=verbose):
        rows = listed_plans(_records(open_store(), account))
        if chosen_form(form, as_json=as_json) is Format.TABLE and rows.is_empty():
            wide_console().print("no plan yet: nvtrader trade", style="dim", highlight=False)
        else:
            write_rows(rows, chosen_form(form, as_json=as_json))


@app.command(epilog=EPILOG)
def show(plan: Plan, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show one plan: its findings with figure and bound, and what each stage made of the weights."""
    from nvtrader_pipelines.service.cli.pages.plan_pages import print_plan

    with one_sentence(verbose=verbose):
        record = _named(_records(open_store()), plan)
        if as_json:
            _write_json(_document(record))
        else:
            print_plan(record)


@app.command(epilog=EPILOG)
def approve(plan: Plan, reason: Acknowledged = "", *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Acknowledge the soft findings of a plan that waits; it is traded at its fill session."""
    _answer("approve", plan, reason, as_json=as_json, verbose=verbose)


@app.command(epilog=EPILOG)
def override(plan: Plan, reason: Refused, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Hold instead of a plan; no order is made."""
    _answer("override", plan, reason, as_json=as_json, verbose=verbose)


@app.command(epilog=EPILOG)
def reject(plan: Plan, reason: Refused, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Refuse a plan; no order is made."""
    _answer("reject", plan, reason, as_json=as_json, verbose=verbose)


def _answer(answer: str, text: str, reason: str, *, as_json: bool, verbose: bool) -> None:
    """Give a person's answer to a plan, and say what was kept."""
    from nvtrader_pipelines.desk.desk import Desk
    from nvtrader_pipelines.storage.views import publish

    with one_sentence(verbose=verbose):
        store, by = open_store(), person()
        plan = _named(_records(store), text).plan
        desk = Desk.open(store, plan.account, by=by)
        event = getattr(desk, answer)(plan.plan_id, by, reason)
        desk.mirror()
        publish(store)
        if as_json:
            _write_json(event.model_dump(mode="json"))
            return
        said = f"plan {plan.plan_id} of {plan.session} is {event.kind} by {by}"
        wide_console().print(f"{said}: {reason}" if reason else said, markup=False, highlight=False, soft_wrap=True)


def _records(store: Store, account: str | None = None) -> "dict[str, PlanRecord]":
    """Every plan by its id, the oldest first.

    Raises:
        StorageError: if there is no such account.
    """
    from nvtrader_pipelines.desk.account_access import read_account
    from nvtrader_pipelines.execution.plan_records import plan_records

    if account is not None:
        read_account(store.home, account)
    return plan_records(store.audit.events(account))


def _named(records: "Mapping[str, PlanRecord]", text: str) -> "PlanRecord":
    """The plan whose id begins with the text.

    Raises:
        ValueError: if there is none, or several begin so.
    """
    found = [record for plan_id, record in records.items() if plan_id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"no plan's id begins with {text!r}; see `nvtrader plans`")
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


def _write_json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=1, default=str) + "\n")
