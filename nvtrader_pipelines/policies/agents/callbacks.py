"""What watches a training: its learning curve, a sample of its episodes, and the moments to save it."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from nvtrader_pipelines.components.ids import ID_LENGTH
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.policies.agents.sampling import EpisodeSampler, State
from nvtrader_pipelines.policies.fit import CURVE_POINTS, CurvePoint, TrainingHooks
from nvtrader_pipelines.policies.trajectory import Played
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv

CHECKPOINTS = 10  # parts of a training between which it is saved


class TrainingLog:
    """What a training was like so far, for any learner on a simulation; nothing of it changes the training.

    Call `step` after each step of the portfolios, `pause` between two of the learner's rollouts.
    """

    def __init__(self, hooks: TrainingHooks, simulation: PortfolioSimulation, total_timesteps: int, seed: int) -> None:
        self.points: list[CurvePoint] = []  # at most CURVE_POINTS: mean reward of a step since the point before
        self._hooks, self._total = hooks, total_timesteps
        self._training = {**_identity(simulation), "seed": seed, "total": total_timesteps, "rate": hooks.sample_rate}
        self._sampler = EpisodeSampler(simulation, hooks.sample_rate, seed)
        self._rewards: list[float] = []
        self._drawn = self._saved = 0  # parts of the training that lie behind the last point, the last checkpoint

    @property
    def rollouts(self) -> pl.DataFrame:
        """The sampled episodes that have ended, by `STEP`."""
        return self._sampler.rollouts()

    def step(self, played: Played, values: Tensor | None = None, log_probs: Tensor | None = None) -> None:
        """Note one step of all portfolios."""
        self._rewards.append(float(played.step.reward[played.running].mean()))
        self._sampler.record(played, values, log_probs)

    def end_rollout(self, timesteps: int) -> None:
        """Add a point to the learning curve, where the next one is due."""
        part = timesteps * CURVE_POINTS // self._total
        if part > self._drawn and self._rewards:
            self._drawn = part
            point = (timesteps, float(np.mean(self._rewards)))
            self._rewards.clear()
            self.points.append(point)
            self._hooks.report(point)

    def start_rollout(self, timesteps: int, save: Callable[[], bytes]) -> None:
        """Hand out a checkpoint, where the next one is due."""
        part = timesteps * CHECKPOINTS // self._total
        if part > self._saved:
            self._saved = part
            if self._hooks.checkpoint is not None:  # saving is a tenth of a short training
                self._hooks.checkpoint(save())

    def state(self) -> State:
        """What `restore` needs to go on from here."""
        arrays, facts = self._sampler.state()
        own = {"points": self.points, "rewards": self._rewards, "drawn": self._drawn, "saved": self._saved}
        return arrays, {**own, "training": self._training, "sampler": facts}

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Go on from a `state`.

        Raises:
            ValueError: if it is of another training.
        """
        for name, value in self._training.items():
            if facts["training"][name] != value:
                raise ValueError(f"its {name} is {facts['training'][name]}, not {value}")
        self._sampler.restore(arrays, facts["sampler"])
        self.points = [(timesteps, reward) for timesteps, reward in facts["points"]]
        self._rewards = list(facts["rewards"])
        self._drawn, self._saved = facts["drawn"], facts["saved"]


def _identity(simulation: PortfolioSimulation) -> dict[str, Any]:
    """What tells two trainings' simulations apart, as JSON gives it back."""
    panel = simulation.panel
    market = hashlib.sha256(panel.sessions.tobytes() + panel.close_returns.tobytes() + panel.features.tobytes())
    return {
        "environment": simulation.spec.model_dump_json(),
        "symbols": list(panel.symbols),
        "market": market.hexdigest()[:ID_LENGTH],
        "window": [list(stretch) for stretch in simulation.stretches],
        "number of portfolios": len(simulation.steps),
    }


class TrainingCallback(BaseCallback):
    """Keeps the log of a training in Stable-Baselines3.

    Args:
        log: where to.
        env: the environment that is trained on.
        save: the state of the training, if it can be resumed.
    """

    def __init__(self, log: TrainingLog, env: PortfolioVecEnv, save: Callable[[], bytes] | None) -> None:
        super().__init__()
        self._log, self._env, self._save = log, env, save

    def _on_rollout_start(self) -> None:
        if self._save is not None:
            self._log.start_rollout(int(self.model.num_timesteps), self._save)

    def _on_step(self) -> bool:
        self._log.step(self._env.played, self.locals.get("values"), self.locals.get("log_probs"))
        return True

    def _on_rollout_end(self) -> None:
        self._log.end_rollout(int(self.num_timesteps))
