"""What watches a training in Stable-Baselines3."""

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from nvtrader_pipelines.policies.agents.fit import CurvePoint, TrainingHooks


class TrainingCallback(BaseCallback):
    """Mean reward of a step over each rollout, before PPO adds the critic's value to the rewards of truncated steps."""

    def __init__(self, hooks: TrainingHooks) -> None:
        super().__init__()
        self.points: list[CurvePoint] = []
        self._hooks = hooks
        self._rewards: list[float] = []

    def _on_step(self) -> bool:
        self._rewards.append(float(np.mean(self.locals["rewards"], dtype=np.float64)))
        return True

    def _on_rollout_end(self) -> None:
        point = (int(self.num_timesteps), float(np.mean(self._rewards)))
        self._rewards.clear()
        self.points.append(point)
        self._hooks.report(point)
