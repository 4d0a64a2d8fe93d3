"""Pages of a home: what was ingested, its components, checks, report, backup and kill switch."""

from typing import TYPE_CHECKING

from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import Format, print_line, write_rows
from nvtrader_pipelines.service.consoles import wide_console

if TYPE_CHECKING:
    from nvtrader_pipelines.service.documents.halt_facts import HaltDocument
    from nvtrader_pipelines.storage.store import Store


def print_ingested(answer: Answer) -> None:
    """Print the market, or that there is nothing new."""
    from nvtrader_pipelines.runs.market_summary import summarize_market
    from nvtrader_pipelines.service.cli.pages.market_page import print_market, print_unchanged

    summary = summarize_market(answer.home.store)
    if answer.document.has_new_bars:
        print_market(summary, wide_console(), answer.document.experiments)
    else:
        print_unchanged(summary)


def print_report(answer: Answer) -> None:
    """Print where a report is, and what it lacks."""
    for title, remedy in answer.document.missing.items():
        print_line(f"no data yet for {title!r}: {remedy}", "yellow")
    print_line(str(answer.document.path))


def print_status(answer: Answer) -> None:
    """Print the state of a home."""
    from nvtrader_pipelines.service.cli.pages import status_page

    status_page.print_status(answer.document)


def print_backup(answer: Answer) -> None:
    """Print where a backup is, and what it lacks."""
    backup = answer.document
    print_line(f"{backup.path}: {backup.n_files:,} files, {backup.n_bytes / 2**20:,.1f} MiB")
    for part in backup.outside:
        print_line(f"not in the backup: {part}", "yellow")


SWITCH_STYLES = {"halted": "bold white on red", "reducing": "bold black on yellow", "active": "bold white on green"}


def print_switch(store: "Store", account: str | None, message: str) -> None:
    """Print the outcome of a halt or a resume, in the color of the state."""
    print_line(message, SWITCH_STYLES[store.switch_of(account).state().state])


def print_cancelled(halt: "HaltDocument") -> None:
    """Print the cancelled orders, and the accounts where orders may still be open."""
    if halt.cancelled:
        print_line(f"cancelled: {', '.join(halt.cancelled)}", "bold")
    for account, reason in halt.still_open.items():
        print_line(
            f"ORDERS MAY STILL BE OPEN on the account {account}: {reason}; cancel them at the broker, or halt again",
            "bold white on red",
        )


PAGES = {
    "ingest": print_ingested,
    "status": print_status,
    "report": print_report,
    "doctor": lambda answer: write_rows(answer.document, Format.TABLE, ["problem"]),
    "notify": lambda answer: write_rows(answer.document, Format.TABLE, ["problem"]),
    "backup": print_backup,
    "resume": lambda answer: print_line(answer.document.message, SWITCH_STYLES[answer.document.trading.state]),
}
