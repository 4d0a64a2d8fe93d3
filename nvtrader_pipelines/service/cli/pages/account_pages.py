"""Pages of accounts: the state of one, and what a person did to it."""

import polars as pl

from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import print_line, print_lines, print_part
from nvtrader_pipelines.service.cli.trade_command import format_halted
from nvtrader_pipelines.service.documents.account_facts import AccountSnapshot, LastPlan
from nvtrader_pipelines.service.documents.document import frame_of


def print_snapshot(snapshot: AccountSnapshot) -> None:
    """Print an account."""
    active, is_open = snapshot.active_policy, snapshot.session is not None
    lines = {
        "account": f"{snapshot.account} ({snapshot.kind})",
        "active policy": f"{active.policy} of run {active.run_id}"
        if active
        else "none: nvtrader policies activate NAME",
        **({"it may trade": active.may_trade, "a newer run": active.newer or ""} if active else {}),
        **(_book_lines(snapshot) if is_open else {"session": "not opened yet: nvtrader trade"}),
        "last plan": _plan_line(snapshot.last_plan),
        "halted": format_halted(snapshot.halted),
        "waits for you": ", ".join(snapshot.waiting),
        "open orders": ", ".join(snapshot.open_orders),
    }
    print_lines(lines)
    reason = snapshot.kill_switch
    switch = f"engaged: {reason}" if reason else "not engaged"
    print_line(f"{'kill switch':<16} {switch}", "bold red" if reason else None)
    if is_open:
        _print_positions(snapshot)


def _print_positions(snapshot: AccountSnapshot) -> None:
    rows = frame_of(snapshot.positions)
    if len(rows):
        shown = rows.with_columns(pl.col("shares").round(4), (100.0 * pl.col("weight")).alias("weight"))
        rows = shown.with_columns(pl.col("price", "value", "weight").round(2)).rename({"weight": "weight %"})
    print_part("positions", rows, "all in cash")


def _gross_line(snapshot: AccountSnapshot) -> str:
    return (
        f"{snapshot.gross:.1%} in long and short positions, {snapshot.gross_before_cap:.1%} before the cap; "
        f"financing of {snapshot.financing:.3%} paid that session"
    )


def _book_lines(snapshot: AccountSnapshot) -> dict[str, str]:
    ruin = f"; {snapshot.ruin}" if snapshot.ruin else ""
    return {
        "session": str(snapshot.session),
        "equity": f"{snapshot.value:,.2f}, {snapshot.equity - 1:+.2%} since the opening{ruin}",
        "that session": f"{snapshot.net_return:+.2%}",
        "drawdown": f"{snapshot.drawdown:.1%}",
        "cash": f"{snapshot.cash:,.2f} ({snapshot.cash_weight:.1%})",
        **({} if snapshot.gross_before_cap is None else {"gross": _gross_line(snapshot)}),
        "reconciliation": _reconciliation_line(snapshot),
    }


def _reconciliation_line(snapshot: AccountSnapshot) -> str:
    if not snapshot.differences:
        return "as expected"
    differences, accepted = "; ".join(snapshot.differences), snapshot.accepted
    if accepted:
        return f"differs: {differences}; accepted by {accepted.by}: {accepted.reason}"
    return f"DIFFERS: {differences}; nothing trades until you correct it, or: nvtrader portfolio accept-differences"


def _plan_line(plan: LastPlan | None) -> str:
    if plan is None:
        return "none yet"
    why = f": {plan.reason}" if plan.reason else ""
    return f"{plan.plan_id} of {plan.session}, {plan.status}{why}"


def print_acceptance(answer: Answer) -> None:
    """Print which differences were accepted."""
    event, account = answer.document, answer.arguments["account"]
    differences = "; ".join(event.detail["differences"])
    print_line(f"holdings of {account} at the close of {event.session} are accepted by {event.by}: {differences}")


def print_reset(answer: Answer) -> None:
    """Print that an account is emptied."""
    event, account = answer.document, answer.arguments["account"]
    close = f"the close of {event.session}"
    print_line(f"{account} is emptied by {event.by} at {close}; `nvtrader trade` opens it anew")


PAGES = {
    "show": lambda answer: print_snapshot(answer.document),
    "accept_differences": print_acceptance,
    "reset": print_reset,
}
