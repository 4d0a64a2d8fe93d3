"""Base class of off-policy agents, which learn from a replay buffer."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.learner import EXTRACTORS, Learner, NetworkOutput
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.replay import GeneralReplay, Replay

if TYPE_CHECKING:
    from sb3_contrib.crossq.policies import CrossQPolicy
    from sb3_contrib.tqc.policies import TQCPolicy
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.sac.policies import SACPolicy
    from stable_baselines3.td3.policies import TD3Policy
    from torch import Tensor

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.training_log import TrainingLog

    Network = SACPolicy | TD3Policy | TQCPolicy | CrossQPolicy


class ReplaySettings(Learner):
    """Settings of parallel portfolios and of the buffer that holds their steps."""

    n_envs: PositiveInt = 16  # parallel portfolios
    buffer_size: PositiveInt = 10_000  # latest steps of all portfolios in the replay buffer
    learning_starts: NonNegativeInt = 1_000  # steps of all portfolios, with random actions, before the first update
    batch_size: PositiveInt = 256  # replayed steps per update


class TargetSettings(ReplaySettings):
    """Settings of target networks."""

    tau: Annotated[float, Field(gt=0.0, le=1.0)] = 0.005  # Polyak coefficient of the target networks


class ReplayLearner(ReplaySettings):
    """Off-policy learner of Stable-Baselines3 or sb3-contrib, with bounded actions.

    The heads of actor and critics are MLPs with ReLU, each with its own extractor. A step of 20 names takes about
    5 KB, so the replay buffer holds only the latest steps and is never saved.
    """

    backbones: ClassVar[frozenset[str]] = EXTRACTORS
    n_critics: ClassVar[int] = 2  # as in the papers
    prioritized: ClassVar[str] = ""  # class in `agents.prioritized` that trains on prioritized replay; empty if none

    train_freq: PositiveInt = 1  # steps of each portfolio between two rounds of updates
    gradient_steps: PositiveInt = 1  # updates per round
    replay: Annotated[Replay, Field(exclude_if=lambda replay: replay == GeneralReplay())] = (
        GeneralReplay()  # choice of the steps that an update learns from
    )

    @model_validator(mode="after")
    def _require_updates(self) -> Self:
        if self.learning_starts >= self.total_timesteps:
            raise ValueError(
                f"learning_starts = {self.learning_starts} must be less than total_timesteps = {self.total_timesteps}"
            )
        if self.buffer_size < self.batch_size:
            raise ValueError(f"buffer_size = {self.buffer_size} must be at least batch_size = {self.batch_size}")
        return self

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require a replay that the agent can learn from, beside what every learner requires.

        Raises:
            ValueError: if the replay is prioritized and the agent's update takes no weights.
        """
        super().require_experiment(spec, field)
        if self.replay.is_prioritized and not self.prioritized:
            raise ValueError(
                f"{field}.replay: {kind_of(type(self))} cannot weight the steps of an update, as {self.replay.kind} "
                "replay requires; choose general or n_step replay"
            )

    @property
    @abstractmethod
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """SB3 class of the algorithm."""

    @property
    def prioritized_algorithm(self) -> "type[OffPolicyAlgorithm]":
        """Class of the algorithm that weights the steps of an update."""
        from nvtrader_pipelines.policies.agents import prioritized

        return getattr(prioritized, self.prioritized)

    @property
    def policy_class(self) -> "type[Network]":
        """SB3 class of the network."""
        return cast("type[Network]", self.algorithm.policy_aliases["MlpPolicy"])

    @property
    def n_portfolios(self) -> int:
        """Number of parallel portfolios."""
        return self.n_envs

    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[Network, TrainingLog]":
        """Train a network on the simulation and return it with the log."""
        from nvtrader_pipelines.policies.agents.checkpoints import learn
        from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv

        env = PortfolioVecEnv(simulation, seed)
        policy_kwargs = self.heads(simulation.builder.layout)
        settings = self.settings(simulation.spec.action.size(len(simulation.panel.symbols)).length)
        algorithm = self.prioritized_algorithm if self.replay.is_prioritized else self.algorithm
        model = algorithm(self.policy_class, env, policy_kwargs=policy_kwargs, seed=seed, device="cpu", **settings)
        policy = cast("Network", model.policy)
        self.prepare(policy, simulation, seed, hooks.start)
        return policy, learn(model, env, self.total_timesteps, hooks, seed)

    def policy(self, layout: ObservationLayout) -> "tuple[type[Network], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        return self.policy_class, self.heads(layout)

    def act(
        self, network: "Network", observation: "Tensor", state: Any, *, with_estimates: bool = True
    ) -> NetworkOutput:
        """Return the actor's action without noise, and the critics' value."""
        scaled = network(observation, deterministic=True)
        value = self.estimate(network, observation, scaled) if with_estimates else None
        return NetworkOutput(network.unscale_action(scaled.numpy())[0], value, None, state)

    def estimate(self, network: "Network", observation: "Tensor", scaled: "Tensor") -> float:
        """Value of an action scaled to [-1, 1]: the minimum of the critics' estimates."""
        import torch

        return float(torch.cat(network.critic(observation, scaled), dim=1).min())

    def heads(self, layout: ObservationLayout) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        import torch
        from torch import nn

        layers, extractor = self.extractor(layout)
        return {
            "net_arch": {"pi": layers, "qf": layers},
            "activation_fn": nn.ReLU,
            "n_critics": self.n_critics,
            "share_features_extractor": False,
            "optimizer_class": torch.optim.Adam,
            "optimizer_kwargs": OPTIMIZER,
            **extractor,
        }

    def settings(self, n_actions: int) -> dict[str, Any]:  # noqa: ARG002 - TD3's noise has one value per action
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {
            "learning_rate": self.schedule(),
            "buffer_size": self.buffer_size,
            "learning_starts": self.learning_starts,
            "batch_size": self.batch_size,
            "gamma": self.gamma,
            "train_freq": self.train_freq,
            "gradient_steps": self.gradient_steps,
            "action_noise": None,
            "optimize_memory_usage": False,
            **self.replay.settings(),
        }


class OffPolicyLearner(ReplayLearner, TargetSettings):
    """Off-policy learner with target networks."""

    def settings(self, n_actions: int) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {**super().settings(n_actions), "tau": self.tau}
