"""Pages of bots: the list, a single one, and a change of its state."""

from typing import TYPE_CHECKING

import polars as pl

from nvtrader_pipelines.service.cli.output import Format, format_cell, print_line, print_lines, write_rows
from nvtrader_pipelines.service.cli.pages.home_pages import SWITCH_STYLES, print_cancelled

if TYPE_CHECKING:
    from nvtrader_pipelines.desk.bots import BotStatus
    from nvtrader_pipelines.service.documents.halt_facts import HaltDocument

COLUMNS = ("bot", "account", "state", "trades", "schedule", "session", "equity", "drawdown")


def print_bots(bots: pl.DataFrame) -> None:
    """Print all bots, then why any of them does not trade, or only reduces."""
    if bots.is_empty():
        print_line("no bot yet: write data/bots/NAME.yaml with a policy and an account, as data/bots/README.md shows")
        return
    write_rows(bots.select(COLUMNS), Format.TABLE)
    for bot, reasons in bots.select("bot", pl.concat_list("reason", "problem", "locks")).iter_rows():
        for reason in dict.fromkeys(filter(None, reasons)):
            print_line(f"{bot}: {reason}", "yellow")


def print_bot(bot: "BotStatus") -> None:
    """Print a bot: its facts, then protections in force."""
    facts = {name.replace("_", " "): value for name, value in bot.model_dump(exclude={"locks"}).items()}
    print_lines({name: format_cell(value) for name, value in facts.items() if value not in (None, "")})
    for lock in bot.locks:
        print_line(lock, "yellow")


def print_restricted(halt: "HaltDocument") -> None:
    """Print the outcome of a stop or a reduction, in the color of the state."""
    print_line(halt.message, SWITCH_STYLES[halt.trading.state])
    print_cancelled(halt)


PAGES = {
    "list": lambda answer: print_bots(answer.document),
    "status": lambda answer: print_bot(answer.document),
    "start": lambda answer: print_bot(answer.document),
    "reduce": lambda answer: print_restricted(answer.document),
    "stop": lambda answer: print_restricted(answer.document),
}
