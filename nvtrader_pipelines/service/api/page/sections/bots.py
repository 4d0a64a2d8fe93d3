"""Bots: what each trades, its state, and the actions that change it."""

from collections.abc import Mapping, Sequence

from nvtrader_pipelines.desk.bots import BotStatus, list_bots
from nvtrader_pipelines.execution.audit import State
from nvtrader_pipelines.orchestration.job_states import bot_schedule_name
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render
from nvtrader_pipelines.storage.read_sources import read_state

ACTIONS: Mapping[State, Sequence[str]] = {  # that change something, by the state of the account alone
    "active": ("reduce", "stop"),
    "reducing": ("start", "stop"),
    "halted": ("start",),
}
N_LOCKS = 2  # protections in force that are shown at once


def read_bot_table(shared: Context) -> Content:
    """Read all bots."""
    rows = [
        {
            "bot": bot,
            "actions": bot_actions(shared, bot),
            "next_at": read_state(shared.next_runs.get, bot_schedule_name(bot.bot)),
        }
        for bot in list_bots(shared.store)
    ]
    return Content(
        {"bots": render("bots", rows=rows, n_locks=N_LOCKS)}, values={"bots": str(len(rows)) if rows else ""}
    )


def bot_actions(shared: Context, bot: BotStatus) -> Sequence[str]:
    """Actions on a bot that change something, also while all accounts are halted."""
    if not bot.policy:  # its file cannot be used; the account is that of its last start
        return ("stop",) if bot.account else ()
    if bot.state == "stopped":
        return ("start",)
    actions = ACTIONS[shared.store.switch_of(bot.account).file_state().state]
    return ("start", *actions) if bot.problem and "start" not in actions else actions
