"""Agents with an actor and a critic that learn from their latest rollouts: PPO, A2C and their kin."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.learner import EVERY_BACKBONE, Learner, NetworkOutput
from nvtrader_pipelines.policies.fit import TrainingHooks

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import Tensor

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.callbacks import TrainingLog


class ActorCriticLearner(Learner):
    """A learner whose network is an actor with a normal distribution, and a critic."""

    resumable: ClassVar[bool] = True
    backbones: ClassVar[frozenset[str]] = EVERY_BACKBONE

    ent_coef: NonNegativeFloat = 0.0  # reward for entropy
    vf_coef: NonNegativeFloat = 0.5  # share of the critic's loss
    max_grad_norm: PositiveFloat = 0.5
    log_std_init: Annotated[float, Field(ge=-5.0, le=2.0)] = -0.5  # log of the first standard deviation of an action

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """The policy's class, and its keyword arguments."""
        return self.backbone.actor_critic(layout, self.log_std_init)

    def network(
        self, layout: ObservationLayout, observation_space: "spaces.Box", action_space: "spaces.Box"
    ) -> "ActorCriticPolicy":
        """A network to decide with, which a fit's tensors are loaded into."""
        from nvtrader_pipelines.policies.agents.deciding import DECIDES

        policy_class, policy_kwargs = self.policy(layout)
        return policy_class(observation_space, action_space, self.schedule(), **{**policy_kwargs, **DECIDES})

    def act(self, network: Any, observation: "Tensor", state: Any) -> NetworkOutput:
        """The distribution's mean."""
        action, value, log_prob = network(observation, deterministic=True)
        return NetworkOutput(action.numpy()[0], float(value), float(log_prob), state)


class OnPolicyLearner(ActorCriticLearner):
    """An actor-critic of Stable-Baselines3 or sb3-contrib."""

    n_envs: PositiveInt = 64  # portfolios side by side
    n_steps: Annotated[int, Field(ge=8, le=4096)] = 64  # per environment and update
    gae_lambda: Annotated[float, Field(ge=0.0, le=1.0)] = 0.9

    @property
    @abstractmethod
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """The library's class."""

    @property
    def n_portfolios(self) -> int:
        """How many portfolios are played side by side."""
        return self.n_envs

    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[ActorCriticPolicy, TrainingLog]":
        """The network that was trained on the simulation, and how it went."""
        from nvtrader_pipelines.policies.agents.checkpoints import learn
        from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv

        env = PortfolioVecEnv(simulation, seed)
        policy_class, policy_kwargs = self.policy(simulation.builder.layout)
        model = self.algorithm(
            policy_class, env, policy_kwargs=policy_kwargs, seed=seed, device="cpu", **self.settings()
        )
        self.prepare(model.policy, simulation, seed)
        log = learn(model, env, self.total_timesteps, hooks, seed)
        return model.policy, log

    def settings(self) -> dict[str, Any]:
        """The algorithm's arguments that decide what is learned; none is left to the library's default."""
        return {
            "learning_rate": self.schedule(),
            "n_steps": self.n_steps,
            "gamma": self.gamma,
            "gae_lambda": self.gae_lambda,
            "ent_coef": self.ent_coef,
            "vf_coef": self.vf_coef,
            "max_grad_norm": self.max_grad_norm,
            "use_sde": False,
            "sde_sample_freq": -1,
        }
