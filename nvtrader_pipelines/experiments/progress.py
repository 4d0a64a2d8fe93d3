"""Progress messages of a run."""

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
