"""Proximal policy optimisation on grouped episodes, with the advantage as a component."""

from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.advantages import Advantage, Estimate, ReinforcePlusPlusAdvantage
from nvtrader_pipelines.policies.agents.callbacks import TrainingLog
from nvtrader_pipelines.policies.agents.checkpoints import (
    numpy_arrays,
    optimizer_state,
    pack,
    prefixed,
    refused,
    restore_optimizer,
    under,
    unpack,
)
from nvtrader_pipelines.policies.agents.grouped_episodes import Experience, Steps, play, start_groups
from nvtrader_pipelines.policies.agents.learner import NetworkOutput
from nvtrader_pipelines.policies.agents.on_policy import ActorCriticLearner
from nvtrader_pipelines.policies.agents.ppo_losses import clipped_policy_loss, value_loss
from nvtrader_pipelines.policies.fit import TrainingHooks

GROUPS = 0x47  # keeps the stream that draws the groups' starts apart from the sample's


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
        self, simulation: PortfolioSimulation, seed: int, hooks: TrainingHooks
    ) -> tuple[ActorCriticPolicy, TrainingLog]:
        """The network that was trained on the simulation, and how it went.

        Raises:
            CheckpointError: if the checkpoint to resume from is damaged or of another training.
        """
        with torch.random.fork_rng(devices=[]):
            training = _Training(self, simulation, seed, hooks)
            while training.timesteps < self.total_timesteps:
                training.update()
        return training.policy, training.log

    def act(self, network: ActorCriticPolicy, observation: Tensor, state: Any) -> NetworkOutput:
        """The distribution's mean; a critic that never learned is not asked."""
        output = super().act(network, observation, state)
        return output if self.advantage.uses_critic else output._replace(value=None)


class _Training:
    """A training between two updates: the policy, its optimizer and the random streams."""

    def __init__(
        self, agent: PpoInhouseAgent, simulation: PortfolioSimulation, seed: int, hooks: TrainingHooks
    ) -> None:
        torch.manual_seed(seed)
        self.timesteps = 0
        self.log = TrainingLog(hooks, simulation, agent.total_timesteps, seed)
        policy_class, policy_kwargs = agent.policy(simulation.builder.layout)
        spaces = observation_space(simulation), action_space(simulation)
        self.policy = policy_class(*spaces, agent.schedule(), **policy_kwargs)
        agent.prepare(self.policy, simulation, seed)
        self._agent, self._simulation = agent, simulation
        self._generator = np.random.default_rng([seed, GROUPS])
        if hooks.resume_from is not None:
            self._restore(hooks.resume_from)

    def update(self) -> None:
        """Play one round of groups and learn from it."""
        self.log.start_rollout(self.timesteps, self.save)
        self.policy.set_training_mode(False)
        group_size, advantage = self._agent.group_size, self._agent.advantage
        start_groups(self._simulation, self._generator, group_size)
        experience = play(self._simulation, self.policy, group_size, self.log, with_critic=advantage.uses_critic)
        self.timesteps += experience.n_steps
        self.log.end_rollout(self.timesteps)
        self._learn(experience, advantage.estimate(experience.episodes, self._agent.gamma))

    def save(self) -> bytes:
        """The state before an update; the simulation has none, since every update begins with new episodes."""
        log_arrays, log_facts = self.log.state()
        optimizer_tensors, optimizer_numbers = optimizer_state(self.policy.optimizer)
        arrays = {
            **prefixed("policy", self.policy.state_dict()),
            **prefixed("optimizer", optimizer_tensors),
            **prefixed("log", log_arrays),
            "torch_random": torch.get_rng_state(),
        }
        facts: dict[str, Any] = {
            "algorithm": self._agent.kind,
            "timesteps": self.timesteps,
            "optimizer": optimizer_numbers,
            "log": log_facts,
            "generator": self._generator.bit_generator.state,
        }
        return pack(arrays, facts)

    def _restore(self, content: bytes) -> None:
        """Go on from what was saved."""
        arrays, facts = unpack(content)
        with refused():
            if facts["algorithm"] != self._agent.kind:
                raise ValueError(f"it is of {facts['algorithm']}, not {self._agent.kind}")
            self.log.restore(numpy_arrays(arrays, "log"), facts["log"])
            self.policy.load_state_dict(under("policy", arrays))
            restore_optimizer(self.policy.optimizer, under("optimizer", arrays), facts["optimizer"])
            self.timesteps = facts["timesteps"]
            self._generator.bit_generator.state = facts["generator"]
            torch.set_rng_state(arrays["torch_random"])

    def _learn(self, experience: Experience, estimate: Estimate) -> None:
        agent = self._agent
        left = 1.0 - self.timesteps / agent.total_timesteps
        for group in self.policy.optimizer.param_groups:
            group["lr"] = agent.schedule()(left)
        self.policy.set_training_mode(True)
        steps = experience.steps(estimate)
        for _ in range(agent.n_epochs):
            order = torch.randperm(len(steps.actions))
            for chosen in order.tensor_split(min(agent.n_minibatches, len(order))):
                self._descend(steps.at(chosen))

    def _descend(self, steps: Steps) -> None:
        agent, policy = self._agent, self.policy
        log_probs, entropy, values = self._judge(steps)
        losses = clipped_policy_loss(
            log_probs,
            steps.log_probs,
            steps.advantages,
            clip_range=agent.clip_range,
            clip_range_high=agent.clip_range_high,
        )
        loss = losses.mean() - agent.ent_coef * entropy.mean()
        if values is not None and steps.returns is not None:
            loss = loss + agent.vf_coef * value_loss(values, steps.returns).mean()
        policy.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), agent.max_grad_norm)
        policy.optimizer.step()

    def _judge(self, steps: Steps) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probabilities and entropy of the steps' actions under the policy as it is, and the critic's values."""
        if self._agent.advantage.uses_critic:
            values, log_probs, entropy = self.policy.evaluate_actions(steps.observations, steps.actions)
            return log_probs, -log_probs if entropy is None else entropy, values.flatten()
        distribution = self.policy.get_distribution(steps.observations)
        log_probs, entropy = distribution.log_prob(steps.actions), distribution.entropy()
        return log_probs, -log_probs if entropy is None else entropy, None
