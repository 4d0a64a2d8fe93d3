"""Proximal policy optimization on grouped episodes, with the advantage as a component."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nvtrader_pipelines.policies.agents.grouped_settings import GroupedSettings
from nvtrader_pipelines.policies.agents.learner import NetworkOutput
from nvtrader_pipelines.policies.fit import TrainingHooks

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import Tensor

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.training_log import TrainingLog


class GroupedPpoAgent(GroupedSettings):
    """PPO (Schulman et al. 2017) on groups of episodes with a common start; defaults untuned.

    Each update plays `group_size` episodes from each of `n_groups` starts; the advantage sets the baseline of an
    episode. Advantages without a critic use an episode's undiscounted reward and ignore `gamma`.
    """

    kind: Literal["grouped_ppo"] = "grouped_ppo"
    aliases: ClassVar[tuple[str, ...]] = ("ppo_inhouse",)

    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[ActorCriticPolicy, TrainingLog]":
        """Train a network on the simulation and return it with the log.

        Raises:
            CheckpointError: if the checkpoint to resume from is damaged or of another training.
        """
        import torch

        from nvtrader_pipelines.policies.agents.grouped_training import GroupedTraining

        with torch.random.fork_rng(devices=[]):
            training = GroupedTraining(self, simulation, seed, hooks)
            while training.timesteps < self.total_timesteps:
                training.update()
        return training.policy, training.log

    def act(
        self, network: "ActorCriticPolicy", observation: "Tensor", state: Any, *, with_estimates: bool = True
    ) -> NetworkOutput:
        """Return the mean action; without a trained critic there is no value."""
        output = super().act(network, observation, state, with_estimates=with_estimates)
        return output if self.advantage.uses_critic else output._replace(value=None)
