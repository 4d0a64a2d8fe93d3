"""REINFORCE with the reward of a step as its return, on Stable-Baselines3's rollouts."""

from typing import ClassVar

from stable_baselines3 import A2C
from torch import nn
from typing_extensions import override


class Reinforce(A2C):
    """REINFORCE (Williams 1992), one update per rollout: no critic, no baseline, no bootstrap.

    The critic of SB3's network gives 0 and is never trained.
    """

    has_critic: ClassVar[bool] = False

    @override
    def _setup_model(self) -> None:
        super()._setup_model()
        for parameter in self.policy.value_net.parameters():
            nn.init.zeros_(parameter)

    @override
    def train(self) -> None:
        """Update the policy by the rollout."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        (steps,) = self.rollout_buffer.get()
        _, log_probs, entropy = self.policy.evaluate_actions(steps.observations, steps.actions.long().flatten())
        assert entropy is not None
        policy_loss = -(steps.returns * log_probs).mean()
        loss = policy_loss - self.ent_coef * entropy.mean()
        self.policy.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        self._n_updates += 1
        self.logger.record("train/policy_gradient_loss", policy_loss.item())
        self.logger.record("train/entropy_loss", -entropy.mean().item())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
