"""Pages of accounts: the state of one, and what a person did to it."""

from collections.abc import Sequence
from datetime import date

import polars as pl
import polars.selectors

from nvtrader_pipelines.components.document import Document, frame_of
from nvtrader_pipelines.desk.account_activity import AccountActivity, BacktestComparison, NoBacktest
from nvtrader_pipelines.desk.account_snapshot import AccountSnapshot, LastPlan
from nvtrader_pipelines.evaluation.formats import annual_cell, format_interval
from nvtrader_pipelines.evaluation.short_samples import short_note
from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import Format, print_line, print_lines, print_part, write_rows

ROUNDED = polars.selectors.float().round(4)


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
    trading = snapshot.trading
    switch = {"halted": "engaged: ", "reducing": "reducing: ", "active": "not engaged"}[trading.state] + trading.reason
    print_line(f"{'kill switch':<16} {switch}", "bold red" if trading.reason else None)
    if is_open:
        _print_positions(snapshot)


def _print_positions(snapshot: AccountSnapshot) -> None:
    rows = snapshot.frame("positions")
    if len(rows):
        profit = pl.col("profit").cast(pl.Float64)  # all may be unknown
        rows = rows.with_columns(pl.col("shares").round(4), profit, (100.0 * pl.col("weight")).alias("weight"))
        rows = rows.with_columns(pl.col("price", "value", "weight", "profit").round(2)).rename({"weight": "weight %"})
    print_part(f"positions, money in {snapshot.currency}", rows, "all in cash")


def print_history(answer: Answer) -> None:
    """Print the past of an account, newest rows first."""
    history = answer.document
    if history.activity is None:
        account = answer.arguments["account"]
        print_line(f"{account} has not traded yet: nvtrader trade --account {account}")
        return
    print_account(history.activity)
    print_part("months", _rows(history.months[::-1], "total_return"), "none yet")
    print_part("orders", _rows(history.orders, "slippage"), "none yet", ["reason"])
    print_part("plans", _rows(history.plans, "turnover", "excess"), "none yet", ["reason"])


def _rows(rows: Sequence[Document], *fractions: str) -> pl.DataFrame:
    """Rows with fractions in percent, rounded."""
    if not rows:
        return pl.DataFrame()
    frame = frame_of(rows)
    percent = frame.with_columns((100.0 * pl.col(name).cast(pl.Float64)).alias(name) for name in fractions)
    return percent.rename({name: f"{name} %" for name in fractions}).with_columns(ROUNDED)


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


def print_account(document: AccountActivity) -> None:
    """Print the activity of an account."""
    plans = ", ".join(f"{count} {name}" for name, count in document.plans.items())
    lines = {
        "account": f"{document.account}, traded by {', '.join(document.policies)}",
        "sessions": _session_line(document),
        "equity": f"{document.value:,.2f}, {document.equity:.6g} of the opening",
        **_figure_lines(document),
        "plans": f"{document.n_plans}: {plans}" if document.n_plans else "0",
        "findings": ", ".join(f"{n} {name}" for name, n in document.findings.items()) or "none",
        "halted": format_halted(document.halted),
        "orders": f"{document.n_orders} placed, {document.n_fills} filled, {document.n_cancelled} cancelled",
        "back-test": _backtest_line(document.backtest),
        "picture": document.picture or "",
    }
    print_lines(lines)
    for blocked in document.blocked:
        print_line(f"{'blocked':<16} {blocked.plan_id} of {blocked.session}: {'; '.join(blocked.findings)}", "red")
    for session, differences in document.differences.items():
        print_line(f"{'DIFFERS':<16} at the close of {session}: {'; '.join(differences)}", "red")
    if document.ruin:
        print_line(f"{'RUINED':<16} {document.ruin}", "red")
    for plan in document.waiting:
        print_line(f"{'waits for you':<16} nvtrader plans show {plan}, then approve, override or reject", "yellow")
    if document.kill_switch:
        print_line(f"{'kill switch':<16} engaged: {document.kill_switch}", "bold red")


def format_halted(sessions: Sequence[date]) -> str:
    """Format the sessions that the kill switch left without a decision; empty if none."""
    count = "1 session" if len(sessions) == 1 else f"{len(sessions)} sessions"
    return f"{count}, {sessions[0]} to {sessions[-1]}" if sessions else ""


def _session_line(document: AccountActivity) -> str:
    if not document.n_sessions:
        return f"none yet; as of the close of {document.last_session}"
    return f"{document.n_sessions}, {document.first_session} to {document.last_session}"


def _figure_lines(document: AccountActivity) -> dict[str, str]:
    if not document.n_sessions:
        return {}
    figures = document.model_dump()
    sharpe = f"{annual_cell(figures, 'sharpe', '.2f')} {format_interval(figures, 'sharpe', '.2f')}".rstrip()
    return {
        "return": f"{document.total_return:+.2%}",
        "net Sharpe": sharpe
        if document.sharpe is None
        else f"{sharpe}, annualized from {document.n_sessions} sessions",
        "max drawdown": f"{document.max_drawdown:.1%}",
        "turnover/y": annual_cell(figures, "turnover_per_year", ".2f"),
        "cost/y": annual_cell(figures, "cost_per_year", ".2%"),
        "note": short_note([document.n_sessions]),
    }


def _backtest_line(backtest: BacktestComparison | NoBacktest | None) -> str:
    if backtest is None:
        return ""
    if isinstance(backtest, NoBacktest):
        return f"none: {backtest.missing}"
    return (
        f"{backtest.equity:.6g} on {backtest.last_session}; largest difference to the account "
        f"{backtest.largest_difference:.1g} over {backtest.n_sessions} sessions from {backtest.first_session}"
    )


PAGES = {
    "curves": lambda answer: write_rows(answer.document.frame(), Format.TABLE),
    "history": print_history,
    "show": lambda answer: print_snapshot(answer.document),
    "accept_differences": print_acceptance,
    "reset": print_reset,
    "trade": lambda answer: print_account(answer.document),
}
