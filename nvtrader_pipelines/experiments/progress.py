"""Progress messages of a run, and the time left of any work in parts."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SHARPE_OF_SEED = "sharpe/seed-"  # prefix of metrics: validation Sharpe ratio of a seed to be chosen or weighted
WEIGHT_OF_SEED = "weight/seed-"  # prefix of metrics: weight of a seed, where several trade together
Stage = Literal[
    "start",
    "data.loaded",
    "env.built",
    "agent.built",
    "train.step",
    "train.checkpoint",
    "evaluate.step",
    "bar.received",
    "signal.emitted",
    "order.placed",
    "order.filled",
    "equity.update",
    "done",
    "error",
]


class Progress(BaseModel):
    """Progress message of a run; the last one is `done` or `error`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    task_id: str  # of this execution; a resumed run has several
    run_id: str
    stage: Stage
    message: str
    timestamp: datetime  # UTC
    fold: int | None = None
    seed: int | None = None
    timesteps: int | None = None  # of this fold and seed
    total_timesteps: int | None = None  # of this fold and seed
    share: float | None = Field(default=None, ge=0.0, le=1.0)  # completed share of the whole run
    metrics: dict[str, float] = Field(default_factory=dict)


class Countdown:
    """Finished parts of some work, and the time left at the mean pace so far."""

    def __init__(self, n_parts: int, clock: Callable[[], float]) -> None:
        """Start the clock.

        Args:
            n_parts: number of parts.
            clock: returns seconds, monotonic.
        """
        self._n_parts, self._n_done, self._clock, self._began = n_parts, 0, clock, clock()

    def count(self) -> str:
        """Count one more part as finished; return for example `3 of 12, 0:00:40 left`."""
        self._n_done += 1
        left = format_time_left(self._n_done / self._n_parts, self._clock() - self._began)
        return f"{self._n_done} of {self._n_parts}, {left}"


def format_time_left(share: float, elapsed: float) -> str:
    """Format the time left when a share of the work (above 0) took `elapsed` seconds."""
    return f"{timedelta(seconds=round(elapsed * (1.0 - share) / share))} left"
