"""Proximal policy optimisation on grouped episodes, with the advantage as a component."""

from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn
from torch.distributions import Distribution

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
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
from nvtrader_pipelines.policies.agents.demeaning import demeaned
from nvtrader_pipelines.policies.agents.fit import DEFAULT_HOOKS, Fit, TrainingHooks
from nvtrader_pipelines.policies.agents.grouped_episodes import Experience, Steps, play, start_groups
from nvtrader_pipelines.policies.agents.ppo_losses import clipped_policy_loss, value_loss
from nvtrader_pipelines.policies.backbones import Backbone, MlpBackbone

GROUPS = 0x47  # keeps the stream that draws the groups' starts apart from the sample's


class PpoInhouseAgent(Component):
    """Proximal policy optimisation (Schulman et al. 2017) on whole episodes in groups that share their start.

    Each update plays `group_size` episodes from each of `n_groups` starts, on one torch thread; the advantage decides
    what an episode is compared with. Advantages without a critic judge an episode by its undiscounted reward.
    """

    resumable: ClassVar[bool] = True

    kind: Literal["ppo_inhouse"] = "ppo_inhouse"
    total_timesteps: PositiveInt = 30_000
    n_groups: PositiveInt = 8  # starts of an update
    group_size: PositiveInt = 8  # episodes from each start
    advantage: Advantage = ReinforcePlusPlusAdvantage()
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 4
    n_minibatches: PositiveInt = 2  # of an epoch, of equal size up to one step
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 1e-3
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05  # share of the first left at the end
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9  # of the advantage with a critic
    clip_range: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2  # how far a probability ratio may fall below 1
    clip_range_high: PositiveFloat = 0.2  # and rise above it
    ent_coef: NonNegativeFloat = 0.0
    vf_coef: NonNegativeFloat = 0.5
    max_grad_norm: PositiveFloat = 0.5
    log_std_init: float = -0.5
    demean_returns: bool = False  # each name's mean log return becomes the cross-section's, in training only
    backbone: Backbone = MlpBackbone()

    @model_validator(mode="after")
    def _groups_suffice(self) -> Self:
        least = self.advantage.least_group_size
        if self.group_size < least:
            raise ValueError(
                f"{self.advantage.kind} compares the episodes of a group, so group_size must be at least {least}, "
                f"but it is {self.group_size}"
            )
        return self

    def train(
        self,
        panel: MarketPanel,
        env: EnvSpec,
        window: tuple[int, int],
        seed: int,
        hooks: TrainingHooks = DEFAULT_HOOKS,
    ) -> Fit:
        """Train on the sessions of `window` (first and last index, inclusive); the same seed gives the same bytes.

        Raises:
            CheckpointError: if the checkpoint to resume from is damaged or of another training.
        """
        first, last = window
        scaler = env.observation.fit(panel, first, last)
        known = demeaned(panel, first, last) if self.demean_returns else panel
        n_portfolios = self.n_groups * self.group_size
        simulation = PortfolioSimulation(known, env, n_portfolios, first=first, last=last, scaler=scaler)
        torch.set_num_threads(1)
        Distribution.set_default_validate_args(False)
        with torch.random.fork_rng(devices=[]):
            training = _Training(self, simulation, hooks, seed)
            if hooks.resume_from is not None:
                training.restore(hooks.resume_from)
            while training.timesteps < self.total_timesteps:
                training.update()
        tensors = {name: tensor.detach().clone() for name, tensor in training.policy.state_dict().items()}
        return Fit(tensors=tensors, scaler=scaler, curve=training.log.points, rollouts=training.log.rollouts)


class _Training:
    """A training between two updates: the policy, its optimizer and the random streams."""

    def __init__(
        self, agent: PpoInhouseAgent, simulation: PortfolioSimulation, hooks: TrainingHooks, seed: int
    ) -> None:
        torch.manual_seed(seed)
        self.timesteps = 0
        self.log = TrainingLog(hooks, simulation, agent.total_timesteps, seed)
        self._agent, self._simulation = agent, simulation
        self._generator = np.random.default_rng([seed, GROUPS])
        policy_class, policy_kwargs = agent.backbone.actor_critic(simulation.builder.layout, agent.log_std_init)
        self.policy: ActorCriticPolicy = policy_class(
            observation_space(simulation), action_space(simulation), lambda _: agent.learning_rate, **policy_kwargs
        )

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

    def restore(self, content: bytes) -> None:
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
        left = max(0.0, 1.0 - self.timesteps / agent.total_timesteps)
        for group in self.policy.optimizer.param_groups:
            group["lr"] = agent.learning_rate * (agent.final_learning_rate + (1.0 - agent.final_learning_rate) * left)
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
