"""What training takes beside the market, and what it gives."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.policies.rollout_tables import STEP

if TYPE_CHECKING:
    import torch

CURVE_POINTS = 200
CurvePoint = tuple[int, float]  # timesteps, mean reward of a step


def _ignore(_: object) -> None:
    """Take no notice."""


@dataclass(frozen=True, eq=False)
class TrainingHooks:
    """How a training is watched, sampled and resumed; none of it changes the trained policy."""

    report: Callable[[CurvePoint], None] = _ignore
    checkpoint: Callable[[bytes], None] | None = None  # called now and then with a state to resume from
    resume_from: bytes | None = None  # such a state
    sample_rate: float = 0.0  # share of training episodes whose steps are recorded


@dataclass(frozen=True, eq=False)
class Fit:
    """What training gave: the network's tensors, the observation's scaler, the learning curve, sampled episodes."""

    tensors: "dict[str, torch.Tensor]"
    scaler: ObservationScaler
    curve: list[CurvePoint]  # at most CURVE_POINTS
    rollouts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STEP))


def thin(points: list[CurvePoint], most: int) -> list[CurvePoint]:
    """At most `most` points, evenly spaced, with the first and the last."""
    if len(points) <= most:
        return points
    return [points[round(i)] for i in np.linspace(0, len(points) - 1, most)]


DEFAULT_HOOKS = TrainingHooks()
