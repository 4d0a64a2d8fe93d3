"""Logs of a training: learning curve, episode sample and checkpoint schedule."""

import hashlib
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from stable_baselines3.common.logger import KVWriter, Logger
from torch import Tensor
from typing_extensions import override

from nvtrader_pipelines.components.text import ID_LENGTH
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.policies.agents.sampling import EpisodeSampler, State
from nvtrader_pipelines.policies.fit import CURVE_POINTS, CurvePoint, TrainingHooks, TrainingPoint
from nvtrader_pipelines.policies.rollout_tables import PREFERENCE_EPOCH
from nvtrader_pipelines.policies.trajectory import PlayedStep

CHECKPOINTS = 10  # parts of a training; a checkpoint is saved between two


class LatestScalars(KVWriter):
    """Output of SB3's logger that holds the finite numbers of the latest dump.

    Elapsed time, timesteps and updates are left out, as SB3 does for TensorBoard: they are axes of a chart.
    """

    def __init__(self) -> None:
        self.scalars: dict[str, float] = {}

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:  # noqa: ARG002 - SB3's signature
        """Replace the scalars."""
        plotted = {name: value for name, value in key_values.items() if "tensorboard" not in key_excluded[name]}
        self.scalars = {
            name: float(value) for name, value in plotted.items() if isinstance(value, Real) and math.isfinite(value)
        }

    def close(self) -> None:
        """Do nothing."""


class CurveLog:
    """Learning curve and checkpoint schedule of a training, for any learner; it never changes the training.

    Call `start_rollout` and `end_rollout` around each rollout and `add_reward` after each step of all accounts.
    """

    def __init__(self, hooks: TrainingHooks, identity: Mapping[str, Any], total_timesteps: int, seed: int) -> None:
        self.points: list[CurvePoint] = []  # at most CURVE_POINTS: mean reward per step since the previous point
        self._latest = LatestScalars()
        self.logger = Logger(None, [self._latest])  # without a folder: SB3's default logger would leave one per run
        self._hooks, self.total_timesteps = hooks, total_timesteps
        self._identity = {**identity, "seed": seed, "total": total_timesteps, "rate": hooks.sample_rate}
        self._rewards: list[float] = []
        self._point_part = self._checkpoint_part = 0  # parts of the training at the last point, the last checkpoint

    def add_reward(self, mean_reward: float) -> None:
        """Record the mean reward of a step."""
        self._rewards.append(mean_reward)

    def end_rollout(self, timesteps: int, dump: Callable[[], None] | None = None) -> None:
        """Add a point to the learning curve if one is due, and report it with the logger's scalars.

        Args:
            timesteps: steps of all portfolios so far.
            dump: dumps the logger; by default its own `dump`.
        """
        part = timesteps * CURVE_POINTS // self.total_timesteps
        if part > self._point_part and self._rewards:
            self._point_part = part
            point = (timesteps, float(np.mean(self._rewards)))
            self._rewards.clear()
            self.points.append(point)
            (dump or self.logger.dump)()
            self._hooks.report(TrainingPoint(*point, self._latest.scalars))

    def start_rollout(self, timesteps: int, save: Callable[[], bytes]) -> None:
        """Pass a checkpoint to the hooks when the next one is due."""
        part = timesteps * CHECKPOINTS // self.total_timesteps
        if part > self._checkpoint_part:
            self._checkpoint_part = part
            if self._hooks.checkpoint is not None:  # saving takes a tenth of a short training
                self._hooks.checkpoint(save())

    def state(self) -> State:
        """Return the state to `restore`."""
        progress = {"point_part": self._point_part, "checkpoint_part": self._checkpoint_part}
        return {}, {"points": self.points, "rewards": self._rewards, **progress, "identity": self._identity}

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:  # noqa: ARG002 - one signature
        """Resume from a `state`.

        Raises:
            ValueError: if it belongs to another training.
        """
        for name, value in self._identity.items():
            if facts["identity"][name] != value:
                raise ValueError(f"its {name} is {facts['identity'][name]}, not {value}")
        self.points = [(timesteps, reward) for timesteps, reward in facts["points"]]
        self._rewards = list(facts["rewards"])
        self._point_part, self._checkpoint_part = facts["point_part"], facts["checkpoint_part"]


class TrainingLog(CurveLog):
    """Learning curve and episode sample of a training of portfolios.

    Call `step` after each step of the portfolios.
    """

    def __init__(self, hooks: TrainingHooks, simulation: PortfolioSimulation, total_timesteps: int, seed: int) -> None:
        super().__init__(hooks, _identity(simulation), total_timesteps, seed)
        self.epochs = pl.DataFrame(schema=PREFERENCE_EPOCH)  # of an agent that tunes a policy
        self._sampler = EpisodeSampler(simulation, hooks.sample_rate, seed)

    @property
    def rollouts(self) -> pl.DataFrame:
        """Finished sampled episodes, with the schema `STEP`."""
        return self._sampler.rollouts()

    def step(self, played: PlayedStep, values: Tensor | None = None, log_probs: Tensor | None = None) -> None:
        """Record one step of all portfolios."""
        self.add_reward(float(played.step.reward[played.running].mean()))
        self._sampler.record(played, values, log_probs)

    @override
    def state(self) -> State:
        arrays, facts = self._sampler.state()
        return arrays, {**super().state()[1], "sampler": facts}

    @override
    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super().restore(arrays, facts)
        self._sampler.restore(arrays, facts["sampler"])


def _identity(simulation: PortfolioSimulation) -> dict[str, Any]:
    """Identity of a training's simulation, in types that survive JSON."""
    panel = simulation.panel
    market = hashlib.sha256(panel.sessions.tobytes() + panel.close_returns.tobytes() + panel.features.tobytes())
    return {
        "environment": simulation.spec.model_dump_json(),
        "symbols": list(panel.symbols),
        "market": market.hexdigest()[:ID_LENGTH],
        "window": [list(stretch) for stretch in simulation.stretches],
        "number of portfolios": len(simulation.steps),
    }
