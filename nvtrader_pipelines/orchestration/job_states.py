"""States of runs and schedules in Dagster, as values; imports no Dagster."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict

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
    last_run: JobRun | None  # of its job, launched by anything
