"""`nvtrader portfolio`: show an account, accept holdings that differ, or reset a simulated account."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.options import Account, Reason, current_user
from nvtrader_pipelines.service.cli.output import print_line, print_lines, print_part, write_json
from nvtrader_pipelines.service.cli.trade_command import format_halted
from nvtrader_pipelines.service.open_home import open_store
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.desk.desk import Desk
    from nvtrader_pipelines.execution.audit import AuditEvent

app = typer.Typer(name="portfolio", help="State of an account, differences from its expected holdings, and its reset.")


@command(app.callback, "nvtrader portfolio", "nvtrader portfolio --account paper --json", invoke_without_command=True)
def portfolio(account: Account = "paper", *, as_json: bool) -> None:
    """Show an account: positions, cash, equity, last plan, waiting plans and the kill switch."""
    from nvtrader_pipelines.desk.account_access import read_account
    from nvtrader_pipelines.promotion.active_policy import read_active
    from nvtrader_pipelines.promotion.recency import eligibility_message
    from nvtrader_pipelines.promotion.rounds import newer_run_message
    from nvtrader_pipelines.service.documents.account_facts import AccountFacts, snapshot

    store = open_store()
    kind, active = read_account(store.home, account).kind, read_active(store)
    document = {
        "kind": kind,
        "active_policy": active
        and {
            "policy": active.policy,
            "run_id": active.run_id,
            "may_trade": eligibility_message(store, active),
            "newer": newer_run_message(store, active),
        },
        **snapshot(AccountFacts.of(store, account)),
    }
    if as_json:
        write_json(document)
    else:
        print_snapshot(document)


@command(app.command, 'nvtrader portfolio accept-differences --reason "bought ten by hand"', name="accept-differences")
def accept_differences(reason: Reason, account: Account = "paper", *, as_json: bool) -> None:
    """Accept holdings that differ from what was expected; trading then resumes."""
    by = current_user()
    event = act_on_account(open_store(), account, lambda desk: desk.accept(by, reason))
    if as_json:
        write_json(event.model_dump(mode="json"))
    else:
        differences = "; ".join(event.detail["differences"])
        print_line(f"holdings of {account} at the close of {event.session} are accepted by {by}: {differences}")


@command(app.command, 'nvtrader portfolio reset --reason "begin with another capital"')
def reset(reason: Reason, account: Account = "paper", *, as_json: bool) -> None:
    """Empty a simulated account, so that it opens anew; its past stays in the audit.

    `portfolio`, `plans` and the portfolio tables but the audit then begin anew, too. An account at a broker cannot be
    reset.
    """
    by = current_user()
    event = act_on_account(open_store(), account, lambda desk: desk.reset(by, reason))
    if as_json:
        write_json(event.model_dump(mode="json"))
    else:
        print_line(f"{account} is emptied by {by} at the close of {event.session}; `nvtrader trade` opens it anew")


def act_on_account(store: Store, account: str, action: "Callable[[Desk], AuditEvent]") -> "AuditEvent":
    """Let the user act on an account, and publish what follows from it."""
    from nvtrader_pipelines.desk.desk import Desk
    from nvtrader_pipelines.storage.views.publishing import publish

    desk = Desk(store, account, by=current_user())
    event = action(desk)
    desk.mirror()
    publish(store)
    return event


def print_snapshot(document: Mapping[str, Any]) -> None:
    """Print an account."""
    active = document["active_policy"]
    lines = {
        "account": f"{document['account']} ({document['kind']})",
        "active policy": f"{active['policy']} of run {active['run_id']}"
        if active
        else "none: nvtrader policies activate NAME",
        **({"it may trade": active["may_trade"], "a newer run": active["newer"] or ""} if active else {}),
        **(_book_lines(document) if "session" in document else {"session": "not opened yet: nvtrader trade"}),
        "last plan": _plan_line(document["last_plan"]),
        "halted": format_halted(document["halted"]),
        "waits for you": ", ".join(document["waiting"]),
        "open orders": ", ".join(document["open_orders"]),
    }
    print_lines(lines)
    reason = document["kill_switch"]
    switch = f"engaged: {reason}" if reason else "not engaged"
    print_line(f"{'kill switch':<16} {switch}", "bold red" if reason else None)
    if "session" in document:
        print_part("positions", _positions(document["positions"]), "all in cash")


def _positions(held: Sequence[Mapping[str, Any]]) -> "pl.DataFrame":
    """Rows of the positions held."""
    import polars as pl

    numbers = ("shares", "price", "value", "weight")
    rows = pl.DataFrame(held, schema={"symbol": pl.String, **dict.fromkeys(numbers, pl.Float64)})
    shown = rows.with_columns(pl.col("shares").round(4), (100.0 * pl.col("weight")).alias("weight"))
    return shown.with_columns(pl.col("price", "value", "weight").round(2)).rename({"weight": "weight %"})


def _book_lines(document: Mapping[str, Any]) -> dict[str, str]:
    return {
        "session": str(document["session"]),
        "equity": f"{document['value']:,.2f}, {document['equity'] - 1:+.2%} since the opening",
        "that session": f"{document['net_return']:+.2%}",
        "drawdown": f"{document['drawdown']:.1%}",
        "cash": f"{document['cash']:,.2f} ({document['cash_weight']:.1%})",
        "reconciliation": _reconciliation_line(document),
    }


def _reconciliation_line(document: Mapping[str, Any]) -> str:
    if not document["differences"]:
        return "as expected"
    differences, accepted = "; ".join(document["differences"]), document["accepted"]
    if accepted:
        return f"differs: {differences}; accepted by {accepted['by']}: {accepted['reason']}"
    return f"DIFFERS: {differences}; nothing trades until you correct it, or: nvtrader portfolio accept-differences"


def _plan_line(plan: Mapping[str, Any] | None) -> str:
    if plan is None:
        return "none yet"
    why = f": {plan['reason']}" if plan["reason"] else ""
    return f"{plan['plan_id']} of {plan['session']}, {plan['status']}{why}"
