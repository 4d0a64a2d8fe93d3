"""The envelope in which a run says how far it is."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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
    """One thing that happened in a run; the last one is `done` or `error`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    task_id: str  # this execution; a run that is resumed has several
    run_id: str
    stage: Stage
    message: str
    timestamp: datetime  # UTC
    fold: int | None = None
    seed: int | None = None
    timesteps: int | None = None  # of this fold and seed
    total_timesteps: int | None = None  # of this fold and seed
    share: float | None = Field(default=None, ge=0.0, le=1.0)  # of the whole run that is done
    metrics: dict[str, float] = Field(default_factory=dict)
