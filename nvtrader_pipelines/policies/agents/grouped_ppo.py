"""Proximal policy optimisation on grouped episodes, with the advantage as a component."""

from typing import TYPE_CHECKING, Any, Literal

from nvtrader_pipelines.policies.agents.grouped_settings import GroupedSettings
from nvtrader_pipelines.policies.agents.learner import NetworkOutput
from nvtrader_pipelines.policies.fit import TrainingHooks

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import Tensor

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.callbacks import TrainingLog


class GroupedPpoAgent(GroupedSettings):
    """PPO on whole episodes in groups that share their start, own code: defaults untuned.

    Each update plays `group_size` episodes from each of `n_groups` starts; the advantage decides what an episode is
    compared with. Advantages without a critic judge an episode by its undiscounted reward and do not read `gamma`.
    """

    kind: Literal["grouped_ppo"] = "grouped_ppo"

    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[ActorCriticPolicy, TrainingLog]":
        """The network that was trained on the simulation, and how it went.

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

    def act(self, network: "ActorCriticPolicy", observation: "Tensor", state: Any) -> NetworkOutput:
        """The distribution's mean; a critic that never learned is not asked."""
        output = super().act(network, observation, state)
        return output if self.advantage.uses_critic else output._replace(value=None)
