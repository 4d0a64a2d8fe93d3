"""On-policy actor-critic agents, which learn from their latest rollout: PPO, A2C and variants."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.learner import EVERY_BACKBONE, EXTRACTORS, Learner, NetworkOutput
from nvtrader_pipelines.policies.backbones.backbone import ExtractorBackbone
from nvtrader_pipelines.policies.fit import TrainingHooks

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import Tensor

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.callbacks import Schedule
    from nvtrader_pipelines.policies.agents.training_log import TrainingLog

GaeLambda = Annotated[float, Field(ge=0.0, le=1.0)]


class EntropyAnnealing(Component):
    """Weight of the entropy bonus that changes linearly over the training's timesteps."""

    start: NonNegativeFloat = 0.01
    end: NonNegativeFloat = 0.0


class GaussianLearner(Learner):
    """Learner with a Gaussian actor and a critic, resumable from a checkpoint bit for bit."""

    backbones: ClassVar[frozenset[str]] = EVERY_BACKBONE
    is_tunable: ClassVar[bool] = True

    log_std_init: Annotated[float, Field(ge=-5.0, le=2.0)] = -0.5  # log of the initial standard deviation of an action

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        return self.backbone.actor_critic(layout, self.log_std_init)

    def act(self, network: Any, observation: "Tensor", state: Any, *, with_estimates: bool = True) -> NetworkOutput:
        """Return the mean action."""
        if not with_estimates:
            action = network._predict(observation, deterministic=True)  # noqa: SLF001 - no public method takes tensors
            return NetworkOutput(action.numpy()[0], None, None, state)
        action, value, log_prob = network(observation, deterministic=True)
        return NetworkOutput(action.numpy()[0], float(value), float(log_prob), state)


class CategoricalLearner(Learner):
    """Learner of a distribution over the choices of a discrete action, resumable from a checkpoint bit for bit."""

    backbones: ClassVar[frozenset[str]] = EXTRACTORS
    is_discrete: ClassVar[bool] = True

    def heads(self, layout: ObservationLayout) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        self.extractor(layout)  # raises for other backbones
        assert isinstance(self.backbone, ExtractorBackbone)
        return self.backbone.heads(layout)

    def act(self, network: Any, observation: "Tensor", state: Any, *, with_estimates: bool = True) -> NetworkOutput:
        """Return the log-probability of each choice; which may be held is a matter of the market."""
        scores = network.get_distribution(observation).distribution.logits.numpy()[0]
        value = float(network.predict_values(observation)) if with_estimates and self.has_critic else None
        return NetworkOutput(scores, value, None, state)


class WeightedLosses(Learner):
    """Learner whose loss adds an entropy bonus and the critic's loss to the policy's."""

    ent_coef: NonNegativeFloat | EntropyAnnealing = 0.0  # weight of the entropy bonus, constant or from start to end
    vf_coef: NonNegativeFloat = 0.5  # weight of the critic's loss
    max_grad_norm: PositiveFloat = 0.5

    def entropy_coefficient(self, remaining: float) -> float:
        """Weight of the entropy bonus where a share of the training remains."""
        if not isinstance(self.ent_coef, EntropyAnnealing):
            return self.ent_coef
        start, end = self.ent_coef.start, self.ent_coef.end
        return end + (start - end) * max(0.0, remaining)  # the last rollout may overshoot


class ActorCriticLearner(WeightedLosses, GaussianLearner):
    """Learner with a Gaussian actor and a critic, whose losses are one weighted sum."""


class RolloutLearner(Learner):
    """On-policy algorithm of Stable-Baselines3 or sb3-contrib."""

    n_envs: PositiveInt = 64  # parallel portfolios
    n_steps: Annotated[int, Field(ge=8, le=4096)] = 64  # per environment and update

    @property
    @abstractmethod
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """SB3 class of the algorithm."""

    @property
    def n_portfolios(self) -> int:
        """Number of parallel portfolios."""
        return self.n_envs

    @property
    def entropy_schedule(self) -> "Schedule | None":
        """Weight of the entropy bonus by the remaining share of the training; None without a bonus."""
        return None

    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[ActorCriticPolicy, TrainingLog]":
        """Train a network on the simulation and return it with the log."""
        from nvtrader_pipelines.policies.agents.checkpoints import learn
        from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv

        env = PortfolioVecEnv(simulation, seed)
        policy_class, policy_kwargs = self.policy(simulation.builder.layout)
        common = {"policy_kwargs": policy_kwargs, "seed": seed, "device": "cpu"}
        model = self.algorithm(cast("type[ActorCriticPolicy]", policy_class), env, **common, **self.settings())
        self.prepare(model.policy, simulation, seed, hooks.start)
        log = learn(model, env, self.total_timesteps, hooks, seed, self.entropy_schedule)
        return model.policy, log

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {"learning_rate": self.schedule(), "n_steps": self.n_steps, "gamma": self.gamma}


class AdvantageLearner(RolloutLearner, WeightedLosses):
    """On-policy algorithm with generalized advantages, whose losses are one weighted sum."""

    gae_lambda: GaeLambda = 0.9

    @property
    def entropy_schedule(self) -> "Schedule | None":
        """Weight of the entropy bonus by the remaining share of the training."""
        return self.entropy_coefficient

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {
            **super().settings(),
            "gae_lambda": self.gae_lambda,
            "ent_coef": self.entropy_coefficient(1.0),
            "vf_coef": self.vf_coef,
            "max_grad_norm": self.max_grad_norm,
        }


class OnPolicyLearner(AdvantageLearner, ActorCriticLearner):
    """On-policy actor-critic of Stable-Baselines3 or sb3-contrib."""

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {**super().settings(), "use_sde": False, "sde_sample_freq": -1}


def require_whole_batches(n_steps: int, batch_size: int) -> None:
    """Raise a ValueError unless the steps of a rollout are a multiple of the batch size."""
    if n_steps % batch_size:
        raise ValueError(
            f"n_envs * n_steps = {n_steps} must be a multiple of batch_size = {batch_size}, "
            "since a truncated minibatch would be noisier than the rest; change one of them"
        )
