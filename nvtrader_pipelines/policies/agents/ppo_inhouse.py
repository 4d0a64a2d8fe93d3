"""Proximal policy optimisation on grouped episodes, with the advantage as a component."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.advantages import Advantage, ReinforcePlusPlusAdvantage
from nvtrader_pipelines.policies.agents.learner import NetworkOutput
from nvtrader_pipelines.policies.agents.on_policy import ActorCriticLearner
from nvtrader_pipelines.policies.fit import TrainingHooks

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import Tensor

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.callbacks import TrainingLog


class PpoInhouseAgent(ActorCriticLearner):
    """Proximal policy optimisation (Schulman et al. 2017) on whole episodes in groups that share their start.

    Each update plays `group_size` episodes from each of `n_groups` starts; the advantage decides what an episode is
    compared with. Advantages without a critic judge an episode by its undiscounted reward and do not read `gamma`.
    """

    kind: Literal["ppo_inhouse"] = "ppo_inhouse"
    n_groups: PositiveInt = 8  # starts of an update
    group_size: PositiveInt = 8  # episodes from each start
    advantage: Advantage = ReinforcePlusPlusAdvantage()
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 4
    n_minibatches: PositiveInt = 2  # of an epoch, of equal size up to one step
    clip_range: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2  # how far a probability ratio may fall below 1
    clip_range_high: PositiveFloat = 0.2  # and rise above it

    @model_validator(mode="after")
    def _groups_suffice(self) -> Self:
        if self.n_portfolios < 2:
            raise ValueError("n_groups times group_size must be at least 2: one episode has none to be compared with")
        least = self.advantage.least_group_size
        if self.group_size < least:
            raise ValueError(
                f"{self.advantage.kind} compares the episodes of a group, so group_size must be at least {least}, "
                f"but it is {self.group_size}"
            )
        return self

    @property
    def n_portfolios(self) -> int:
        """How many portfolios are played side by side."""
        return self.n_groups * self.group_size

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
