"""What agents that learn have in common: a training window in, a fit out, and decisions by the trained network."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel, Window, normalize_windows
from nvtrader_pipelines.policies.agents.demeaning import demeaned
from nvtrader_pipelines.policies.backbones import Backbone, MlpBackbone
from nvtrader_pipelines.policies.backbones.backbone import ExtractorBackbone
from nvtrader_pipelines.policies.fit import DEFAULT_HOOKS, Fit, TrainingHooks

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.policies import BasePolicy
    from torch import Tensor

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.callbacks import TrainingLog

_BACKBONES = get_args(get_args(Backbone)[0])
EVERY_BACKBONE = frozenset(member.model_fields["kind"].default for member in _BACKBONES)
EXTRACTORS = frozenset(  # those that only extract features, under any heads
    member.model_fields["kind"].default for member in _BACKBONES if issubclass(member, ExtractorBackbone)
)


class NetworkOutput(NamedTuple):
    """What a trained network answers to one observation."""

    action: NDArray[np.float32]  # (A,) the most likely one, not yet brought within bounds
    value: float | None  # the critic's estimate of what the action earns
    log_prob: float | None  # of the action, where the agent draws its actions from a distribution
    state: Any = None  # what a network with memory must be given at the next decision


class Learner(Component):
    """An agent that learns a policy on a training window, on one torch thread."""

    classical: ClassVar[bool] = False
    resumable: ClassVar[bool]  # from a checkpoint, bit for bit
    backbones: ClassVar[frozenset[str]]  # kinds it takes

    total_timesteps: PositiveInt = 30_000  # steps of all portfolios together; the last rollout is finished
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 1e-3
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05  # share of the first left at the end
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    demean_returns: bool = False  # each name's mean log return becomes the cross-section's, in training only
    backbone: Backbone = MlpBackbone()

    def train(
        self,
        panel: MarketPanel,
        env: EnvSpec,
        window: Window | Sequence[Window],
        seed: int,
        hooks: TrainingHooks = DEFAULT_HOOKS,
    ) -> Fit:
        """Train on the sessions of `window` (first and last index, inclusive); the same seed gives the same bytes.

        Of several windows, in time order, no session between them is trained on, and no episode goes beyond its own.

        Raises:
            CheckpointError: if there is a checkpoint to resume from and this training cannot.
            ValueError: if the training diverged.
        """
        import torch
        from torch.distributions import Distribution

        from nvtrader_pipelines.envs.simulation import PortfolioSimulation, fit_scaler

        windows = normalize_windows(window)
        scaler = fit_scaler(panel, env.observation, windows)
        known = demeaned(panel, windows) if self.demean_returns else panel
        ends = {"first": windows[0][0], "last": windows[-1][1]}
        simulation = PortfolioSimulation(known, env, self.n_portfolios, **ends, stretches=windows, scaler=scaler)
        torch.set_num_threads(1)
        Distribution.set_default_validate_args(False)
        policy, log = self.learn(simulation, seed, hooks)
        tensors = {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
        broken = next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
        if broken is not None:
            raise ValueError(
                f"a trained network must hold finite numbers, but {broken} does not: the training diverged; "
                "lower learning_rate"
            )
        return Fit(tensors=tensors, scaler=scaler, curve=log.points, rollouts=log.rollouts)

    @property
    @abstractmethod
    def n_portfolios(self) -> int:
        """How many portfolios are played side by side."""

    @abstractmethod
    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[BasePolicy, TrainingLog]":
        """The network that was trained on the simulation, and how it went."""

    @abstractmethod
    def network(
        self, layout: ObservationLayout, observation_space: "spaces.Box", action_space: "spaces.Box"
    ) -> "BasePolicy":
        """A network to decide with, which a fit's tensors are loaded into."""

    @abstractmethod
    def act(self, network: Any, observation: "Tensor", state: Any) -> NetworkOutput:
        """What the network decides without exploring.

        Args:
            network: one of this agent's.
            observation: (1, length) float32.
            state: what the network gave at the decision before; None at the first.
        """

    def schedule(self) -> Callable[[float], float]:
        """The learning rate by the share of the training that remains: it falls linearly."""
        first, final = self.learning_rate, self.final_learning_rate
        return lambda remaining: first * (final + (1.0 - final) * max(0.0, remaining))  # the last rollout is finished

    def prepare(self, policy: "BasePolicy", simulation: "PortfolioSimulation", seed: int) -> None:
        """Let the backbone fit what is fitted before learning, on what an account in cash sees in the window."""
        import torch

        sessions = simulation.sessions
        weights = np.zeros((len(sessions), len(simulation.panel.symbols) + 1))
        weights[:, -1] = 1.0
        observations = simulation.builder.observe(sessions, AccountView(weights, np.zeros(len(sessions))))
        self.backbone.prepare(policy, torch.as_tensor(observations), seed)

    def extractor(self, layout: ObservationLayout) -> tuple[list[int], dict[str, Any]]:
        """Layers of each head, and the policy's keyword arguments that put the backbone's extractor under them."""
        if not isinstance(self.backbone, ExtractorBackbone):
            taken = ", ".join(sorted(self.backbones))
            raise ValueError(f"the agent takes a backbone of {taken}, but it has {self.backbone.kind}; choose one")
        return list(self.backbone.hidden), self.backbone.extractor(layout)
