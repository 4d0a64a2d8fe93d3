"""`nvtrader trade`: trade an account session by session, and compare it with its back-test."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.notify_at_end import notify_at_end
from nvtrader_pipelines.service.cli.options import Account, parse_day
from nvtrader_pipelines.service.cli.output import print_line, print_lines, write_json
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.service.open_home import current_user, open_store
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.desk.desk import Desk
    from nvtrader_pipelines.execution.errors import ExecutionError
    from nvtrader_pipelines.service.documents.account_facts import AccountActivity, BacktestComparison, NoBacktest

app = typer.Typer()
Days = tuple[date | None, date | None]  # first and last, inclusive
FirstDay = Annotated[date | None, typer.Option("--from", parser=parse_day, help="First session to trade.")]
LastDay = Annotated[date | None, typer.Option("--to", parser=parse_day, help="Last session to trade.")]
WAIT = "With --from or --to: wait for a person at soft findings, as without these options."
Wait = Annotated[bool, typer.Option("--wait", help=WAIT)]


@command(
    app.command,
    "nvtrader trade",
    "nvtrader trade --from 2017-03-01 --to 2017-06-30",
    "nvtrader trade --account paper --json",
)
def trade(
    first: FirstDay = None, last: LastDay = None, account: Account = "paper", *, wait: Wait = False, as_json: bool
) -> None:
    """Trade the active policy over all due sessions; --from and --to replay a history.

    A replay approves soft findings itself, unless --wait is given. Otherwise trading stops at a plan that waits for
    you; the next call resumes, and a plan that is not approved by then has expired. If the account's holdings differ
    from what was expected, the command exits with 1, and nothing trades until you correct the holdings or run
    `nvtrader portfolio accept-differences`. While trading is halted, only the market's last session is recorded; with
    earlier sessions to trade, the command stops at once and exits with 1.

    Orders pass compliance and are placed on the account. `nvtrader runs forward` places none: it walks any run's
    policies over the sessions since their tests, as a new run to compare.
    """
    from nvtrader_pipelines.desk.desk import Desk
    from nvtrader_pipelines.service.documents.trade_facts import trade_document
    from nvtrader_pipelines.storage.views.publishing import publish

    store, days = open_store(), (first, last)
    with notify_at_end(store, shlex.join(["nvtrader", "trade", "--account", account])):
        require_history(store, account, days)
        desk, acknowledge = Desk(store, account, by=current_user()), days != (None, None) and not wait
        stopped = trade_sessions(desk, days, acknowledge=acknowledge, quiet=as_json)
        desk.mirror()
        publish(store)
        document = trade_document(store, account, days)
        if as_json:
            write_json(document.model_dump(mode="json", exclude_unset=True))
        else:
            print_account(document)
        if stopped:
            raise stopped


def require_history(store: Store, account: str, days: Days) -> None:
    """Raise if an account cannot replay these days.

    Raises:
        ValueError: if the account is at a broker, or not open and without a first day.
        ExecutionError: if its book is missing, although the audit has events.
    """
    from nvtrader_pipelines.desk.account_access import read_account
    from nvtrader_pipelines.service.documents.account_facts import AccountFacts

    first, last = days
    if days != (None, None) and (kind := read_account(store.home, account).kind) != "simulated":
        raise ValueError(
            f"a history can only be replayed on a simulated account, but {account} is at a broker (kind: {kind}); "
            "leave out --from and --to"
        )
    if last and not first and not AccountFacts.of(store, account).states:
        raise ValueError(f"a history needs a first day, since the account {account} is not open yet; give --from, too")


def trade_sessions(desk: "Desk", days: Days, *, acknowledge: bool, quiet: bool) -> "ExecutionError | None":
    """Trade all due sessions, or up to a plan that waits for a person, and show the progress.

    Returns:
        The error of an account that differs or is halted; it is raised after the account is printed.
    """
    from nvtrader_pipelines.execution.errors import NotReconciled, TradingHalted
    from nvtrader_pipelines.service.progress_display import show_progress

    with show_progress(wide_console(), quiet=quiet) as on_progress:
        try:
            for step in desk.trade(*days, acknowledge=acknowledge, until_waiting=not acknowledge):
                on_progress(step)
        except (NotReconciled, TradingHalted) as error:
            return error
    return None


def print_account(document: "AccountActivity") -> None:
    """Print the activity of an account."""
    lines = {
        "account": f"{document.account}, traded by {', '.join(document.policies)}",
        "sessions": _session_line(document),
        "equity": f"{document.value:,.2f}, {document.equity:.6g} of the opening",
        **_figure_lines(document),
        "plans": _format_counts(document.n_plans, document.plans),
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


def _session_line(document: "AccountActivity") -> str:
    if not document.n_sessions:
        return f"none yet; as of the close of {document.last_session}"
    return f"{document.n_sessions}, {document.first_session} to {document.last_session}"


def _figure_lines(document: "AccountActivity") -> dict[str, str]:
    if not document.n_sessions:
        return {}
    from nvtrader_pipelines.service.account_cells import annual_cell, format_interval
    from nvtrader_pipelines.service.documents.short_samples import short_note

    figures = document.model_dump()
    sharpe = annual_cell(figures, "sharpe", ".2f")
    if document.sharpe_low is not None:
        sharpe = f"{sharpe} {format_interval(figures, 'sharpe', '.2f')}"
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


def _format_counts(n: int, parts: Mapping[str, int]) -> str:
    return f"{n}: {', '.join(f'{count} {name}' for name, count in parts.items())}" if n else "0"


def _backtest_line(backtest: "BacktestComparison | NoBacktest | None") -> str:
    from nvtrader_pipelines.service.documents.account_facts import NoBacktest

    if backtest is None:
        return ""
    if isinstance(backtest, NoBacktest):
        return f"none: {backtest.missing}"
    return (
        f"{backtest.equity:.6g} on {backtest.last_session}; largest difference to the account "
        f"{backtest.largest_difference:.1g} over {backtest.n_sessions} sessions from {backtest.first_session}"
    )
