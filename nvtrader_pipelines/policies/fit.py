"""Hooks that observe a training, and its result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.policies.rollout_tables import PREFERENCE_EPOCH, STEP
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline

if TYPE_CHECKING:
    import torch

CURVE_POINTS = 200
CurvePoint = tuple[int, float]  # timesteps, mean reward per step


class TrainingPoint(NamedTuple):
    """Point of the learning curve, with the scalars of the algorithm."""

    timesteps: int
    mean_reward: float  # per step, since the previous point
    scalars: Mapping[str, float]  # by Stable-Baselines3's names; of the latest update


def _ignore(_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, eq=False)
class Start:
    """Policy that a training starts from, in place of random weights."""

    scaler: ObservationScaler
    tensors: bytes  # safetensors
    sha256: str  # of its file; empty without one


@dataclass(frozen=True, eq=False)
class TrainingHooks:
    """Callbacks, checkpoint and sampling rate of a training, which change no policy; its start, its pipeline."""

    report: Callable[[TrainingPoint], None] = _ignore
    checkpoint: Callable[[bytes], None] | None = None  # receives a checkpoint at each tenth of the training
    resume_from: bytes | None = None  # a checkpoint
    sample_rate: float = 0.0  # share of training episodes whose steps are recorded
    start: Start | None = None  # instead of random weights; with pairs, of an agent that tunes a policy
    pipeline: WeightPipeline | None = None  # between actions and weights, where the environment asks for one


@dataclass(frozen=True, eq=False)
class Fit:
    """Result of a training: network, observation scaler, learning curve, sampled episodes and epochs."""

    tensors: "dict[str, torch.Tensor]"
    scaler: ObservationScaler
    curve: list[CurvePoint]  # at most CURVE_POINTS of each stage
    rollouts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STEP))
    epochs: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PREFERENCE_EPOCH))


DEFAULT_HOOKS = TrainingHooks()
