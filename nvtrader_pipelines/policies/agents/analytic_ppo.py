"""Stable-Baselines3's PPO with the gradients of small networks written out."""

from collections.abc import Mapping

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import explained_variance
from stable_baselines3.common.vec_env import VecEnv
from typing_extensions import override

from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer
from nvtrader_pipelines.policies.networks.loops import NO_CLIPPING, loss_gradients, sample_actions
from nvtrader_pipelines.policies.networks.written_out import written_out


class AnalyticPpo(PPO):
    """SB3's PPO, with the same steps in fewer calls where its network is written out; any other is left to SB3.

    Equal to SB3's update but for rounding. Source of the loss: Schulman et al. (2017), as SB3 has it.
    """

    @override
    def _setup_model(self) -> None:
        super()._setup_model()
        self.network = written_out(self.policy) if self.target_kl is None else None

    @override
    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Play steps of all portfolios into the buffer; an episode that ends by its length counts the value there."""
        network, bounds = self.network, self.action_space
        if network is None:
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)
        assert isinstance(bounds, Box)
        rollout_buffer.reset()
        callback.on_rollout_start()
        observations, starts = self._last_obs, self._last_episode_starts
        for _ in range(n_rollout_steps):
            assert isinstance(observations, np.ndarray)
            assert starts is not None
            batch = network.forward(torch.from_numpy(observations))
            batch.noise.normal_()
            actions = np.empty_like(batch.noise.numpy())
            sample_actions(batch.means.numpy(), batch.noise.numpy(), network.log_std, actions, batch.log_probs.numpy())
            new_observations, rewards, dones, infos = env.step(np.clip(actions, bounds.low, bounds.high))
            self.num_timesteps += env.num_envs
            callback.update_locals({"values": batch.values, "log_probs": batch.log_probs})
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            rollout_buffer.add(observations, actions, rewards, starts, batch.values, batch.log_probs)
            if ended := [i for i in np.flatnonzero(dones) if infos[i]["TimeLimit.truncated"]]:
                last = np.stack([infos[i]["terminal_observation"] for i in ended])
                bootstraps = network.forward(torch.from_numpy(last)).values.numpy()[:, 0]
                rollout_buffer.rewards[rollout_buffer.pos - 1, ended] += self.gamma * bootstraps
            observations, starts = new_observations, dones
        assert isinstance(observations, np.ndarray)
        assert starts is not None
        self._last_obs, self._last_episode_starts = observations, starts
        last_values = network.forward(torch.from_numpy(observations)).values
        rollout_buffer.compute_returns_and_advantage(last_values=last_values, dones=starts)
        callback.on_rollout_end()
        return True

    @override
    def train(self) -> None:
        """Update the policy by the rollout."""
        network, buffer = self.network, self.rollout_buffer
        if network is None:
            super().train()
            return
        assert isinstance(buffer, InPlaceRolloutBuffer)
        self._update_learning_rate(self.policy.optimizer)
        clip_range, clip_range_vf = (
            schedule(self._current_progress_remaining) if callable(schedule) else None
            for schedule in (self.clip_range, self.clip_range_vf)
        )
        assert clip_range is not None
        observations, *parts = buffer.flat()
        actions, values, log_probs, advantages, returns = (part.numpy() for part in parts)
        value_range = NO_CLIPPING if clip_range_vf is None else clip_range_vf
        network.flat.read_moments()
        losses = []
        for _ in range(self.n_epochs):
            for rows in buffer.shuffled_rows(self.batch_size):
                chosen = network.batch(len(rows)).observations
                torch.index_select(observations, 0, rows, out=chosen)
                batch = network.forward(chosen)
                losses.append(
                    loss_gradients(
                        rows.numpy(),
                        batch.means.numpy(),
                        batch.values.numpy(),
                        actions,
                        values,
                        log_probs,
                        advantages,
                        returns,
                        network.log_std,
                        clip_range,
                        value_range,
                        self.ent_coef,
                        self.vf_coef,
                        self.normalize_advantage,
                        batch.d_means.numpy(),
                        batch.d_values.numpy(),
                        network.d_log_std,
                    )
                )
                network.backward(chosen, batch)
                network.flat.step(self.max_grad_norm)
        network.flat.write_steps()
        self._n_updates += self.n_epochs
        self._record(losses, {"clip_range": clip_range, "clip_range_vf": clip_range_vf})

    def _record(self, losses: list[tuple[float, ...]], ranges: Mapping[str, float | None]) -> None:
        """Log what SB3 logs of an update."""
        policy_loss, value_loss, divergence, clipped, entropy = np.array(losses).T
        last_epoch = divergence[-len(losses) // self.n_epochs :]
        buffer = self.rollout_buffer
        scalars = {
            "entropy_loss": -entropy.mean(),
            "policy_gradient_loss": policy_loss.mean(),
            "value_loss": value_loss.mean(),
            "approx_kl": last_epoch.mean(),
            "clip_fraction": clipped.mean(),
            "loss": policy_loss[-1] - self.ent_coef * entropy[-1] + self.vf_coef * value_loss[-1],
            "explained_variance": explained_variance(buffer.values.flatten(), buffer.returns.flatten()),
            "std": self.policy.log_std.exp().mean().item(),
            **{name: value for name, value in ranges.items() if value is not None},
        }
        for name, value in scalars.items():
            self.logger.record(f"train/{name}", value)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
