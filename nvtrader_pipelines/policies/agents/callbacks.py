"""Callback that feeds the log of a training in Stable-Baselines3."""

from collections.abc import Callable
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from nvtrader_pipelines.policies.agents.training_log import CurveLog
from nvtrader_pipelines.policies.shared_vec_env import SharedVecEnv

Algorithm = OnPolicyAlgorithm | OffPolicyAlgorithm
Schedule = Callable[[float], float]  # of a setting, by the remaining share of the training


class TrainingCallback(BaseCallback):
    """Callback that feeds a training's log in SB3 and anneals the entropy bonus of an on-policy model.

    Without `save` there are no checkpoints; without `ent_coef` the model's own weight stays.
    """

    def __init__(
        self,
        log: CurveLog,
        algorithm: Algorithm,
        env: SharedVecEnv[Any],
        save: Callable[[], bytes] | None,
        ent_coef: Schedule | None,
    ) -> None:
        super().__init__()
        self._log, self._algorithm, self._env, self._save, self._ent_coef = log, algorithm, env, save, ent_coef

    def _on_rollout_start(self) -> None:
        if self._save is not None:
            self._log.start_rollout(int(self.model.num_timesteps), self._save)

    def _on_step(self) -> bool:
        values = self.locals.get("values") if getattr(self._algorithm, "has_critic", True) else None
        self._env.record(self._log, values, self.locals.get("log_probs"))
        return True

    def _on_rollout_end(self) -> None:
        self._log.end_rollout(int(self.num_timesteps), self._algorithm.dump_logs)
        if self._ent_coef is not None and isinstance(self._algorithm, OnPolicyAlgorithm):
            self._algorithm.ent_coef = self._ent_coef(1.0 - self.num_timesteps / self._log.total_timesteps)
            self.logger.record("train/ent_coef", self._algorithm.ent_coef)  # of the update that follows
