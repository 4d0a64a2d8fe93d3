"""States of runs and schedules in Dagster, as values; imports no Dagster."""

import re
from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.desk.bot_files import read_bots
from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.runs.market_state import other_calendars
from nvtrader_pipelines.storage.home import Home

SCHEDULED_JOBS = {  # job of each schedule, those of the feedback loop first
    "nightly_preference_extract": "preferences",
    "dpo_check": "dpo_check",
    "weekly_retrain": "experiment",
    "eod_ingest": "market",
    "eod_rebalance": "rebalance",
    "weekly_autoresearch": "autoresearch",
    "weekly_upkeep": "upkeep",
}
RUN_NOW = "nvtrader/run_now"  # tag: schedule whose runs a person launched
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")  # Dagster's words


class JobRun(BaseModel):
    """Run of a job."""

    model_config = ConfigDict(frozen=True)
    run_id: str
    job: str
    status: str  # in Dagster's words
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    tags: Mapping[str, str]

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.status in FINISHED

    @property
    def is_by_hand(self) -> bool:
        """Whether a person launched it in the place of a schedule."""
        return RUN_NOW in self.tags


class ScheduleState(BaseModel):
    """State of a schedule."""

    model_config = ConfigDict(frozen=True)
    schedule: str
    job: str
    is_on: bool  # a UI runs in which it is not stopped
    next_at: datetime | None
    last_tick_at: datetime | None
    last_tick: str | None  # status in Dagster's words
    skip_reason: str | None  # of the last tick
    last_run: JobRun | None  # that it launched, or a person in its place


def schedule_name(base: str, calendar: TradingCalendar) -> str:
    """Name of a calendar's schedule: `eod_ingest` in New York, `eod_ingest_24_7` where the market never closes."""
    return base if calendar == NEW_YORK else f"{base}_{re.sub('[^a-z0-9]', '_', calendar.name.lower())}"


def bot_schedule_name(bot: str) -> str:
    """Name of a bot's schedule; Dagster allows no - in it."""
    return f"bot_{bot.replace('-', '_')}"


def scheduled_jobs(home: Home) -> dict[str, str]:
    """Job of each schedule of a home."""
    after_close = {name: job for name, job in SCHEDULED_JOBS.items() if name.startswith("eod_")}
    bots = {bot_schedule_name(bot): SCHEDULED_JOBS["eod_rebalance"] for bot in read_bots(home).specs}
    calendars = other_calendars(home)
    others = {schedule_name(name, calendar): job for calendar in calendars for name, job in after_close.items()}
    return SCHEDULED_JOBS | others | bots
