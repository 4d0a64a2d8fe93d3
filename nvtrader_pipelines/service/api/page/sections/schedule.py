"""Schedules: last and next run, and run now."""

import time

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.orchestration.job_states import ScheduleState
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render
from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.read_sources import read_state

PURPOSES = {
    "nightly_preference_extract": "decisions, their outcomes, and preference pairs",
    "dpo_check": "whether there are pairs enough to tune on",
    "weekly_retrain": "trains every experiment on the current market",
    "eod_ingest": "delivers and checks the prices of the day",
    "eod_rebalance": "trades the account paper after the close",
    "bot_": "trades the account of a bot, by the schedule that its file names",
    "weekly_autoresearch": "a search session on the market that is traded; off by default, since one that finds "
    "something spends a look at the sealed window; the Dagster UI switches it on",
    "weekly_upkeep": "compacts the warehouse",
}
N_FIRST = 3  # schedules of the feedback loop


def read_schedule(shared: Context) -> Content:
    """Read the schedules from Dagster."""
    read_state(time.monotonic)  # no file tells of changes
    states = shared.job_runs.schedules()
    shared.next_runs.update({state.schedule: state.next_at for state in states})
    url = running_url(shared.home.dagster)
    purposes = {
        state.schedule: purpose
        for state in states
        for name, purpose in PURPOSES.items()
        if state.schedule.startswith(name)  # one of another calendar ends in its name
    }
    values = {"first": states[:N_FIRST], "others": states[N_FIRST:], "purposes": purposes, "url": url}
    return Content({"schedule": render("schedule", **values)}, values={"next_run": _next_run(states)})


def _next_run(states: list[ScheduleState]) -> str:
    times = [state.next_at for state in states[:N_FIRST] if state.next_at]
    return f"{min(times).astimezone(NEW_YORK.time_zone):%H:%M}" if times else ""
