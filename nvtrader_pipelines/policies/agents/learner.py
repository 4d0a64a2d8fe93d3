"""Base class of agents that learn: training on a window, and decisions by the trained network."""

import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.components.text import RunId
from nvtrader_pipelines.envs.observations import ObservationLayout, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel, Window, normalize_windows
from nvtrader_pipelines.policies.agents.demeaning import demean_panel
from nvtrader_pipelines.policies.backbones import Backbone, MlpBackbone
from nvtrader_pipelines.policies.backbones.backbone import ExtractorBackbone, NameScoresBackbone, TrainingHistory
from nvtrader_pipelines.policies.fit import DEFAULT_HOOKS, Fit, Start, TrainingHooks
from nvtrader_pipelines.policies.policy import BaseAgent

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.policies import BasePolicy
    from torch import Tensor

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.training_log import TrainingLog

_BACKBONES = get_args(get_args(Backbone)[0])
EVERY_BACKBONE = frozenset(member.model_fields["kind"].default for member in _BACKBONES)
MIN_SEEDS = 3  # to see the spread
EXTRACTORS = frozenset(  # backbones that only extract features, for any heads
    member.model_fields["kind"].default for member in _BACKBONES if issubclass(member, ExtractorBackbone)
)


class NetworkOutput(NamedTuple):
    """Output of a trained network for one observation."""

    action: NDArray[np.float32]  # (A,) the most likely action, before clipping
    value: float | None  # the critic's estimate of the return
    log_prob: float | None  # of the action, if actions are drawn from a distribution
    state: Any = None  # of a recurrent network, for the next decision


class Learner(BaseAgent):
    """Agent that learns a policy on a training window, on one torch thread."""

    is_classical: ClassVar[bool] = False
    is_discrete: ClassVar[bool] = False  # chooses one of several portfolios
    has_critic: ClassVar[bool] = True
    min_seeds: ClassVar[int] = MIN_SEEDS
    is_scores_mapper: ClassVar[bool] = False  # turns a backbone's scores of names into values of any of its actions
    caveat: ClassVar[str] = ""  # for readers of its policies' cards
    backbones: ClassVar[frozenset[str]]  # supported kinds

    total_timesteps: PositiveInt = 30_000  # steps of all portfolios together; the last rollout is completed
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 1e-3
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05  # at the end, as a share of learning_rate
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    demean_returns: bool = False  # replace each name's mean log return by the cross-section's, in training only
    backbone: Backbone = MlpBackbone()
    start: RunId | None = Field(default=None, exclude_if=operator.not_)  # run whose policies the training starts from

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require a backbone that the agent takes and the observation suits, its kind of action, and enough seeds.

        Raises:
            ValueError: if the experiment has another backbone or action, or too few seeds.
        """
        kind, backbone, observation = kind_of(type(self)), self.backbone, spec.environment.observation
        is_extractor = isinstance(backbone, ExtractorBackbone) and self.backbones >= EXTRACTORS
        if backbone.kind not in self.backbones and not is_extractor:
            raise ValueError(
                f"{field}.backbone: found {backbone.kind}, but {kind} takes one of {', '.join(sorted(self.backbones))}"
            )
        gives_name_scores = isinstance(backbone, NameScoresBackbone)
        if gives_name_scores and observation.kind not in backbone.observations:
            suitable = " or ".join(backbone.observations)
            raise ValueError(
                f"{field}.backbone: the {backbone.kind} backbone needs the {suitable} observation, but "
                f"environment.observation is {observation.kind}; choose {suitable}"
            )
        if gives_name_scores and not self.is_scores_mapper and spec.environment.action.size(2).length != 3:
            raise ValueError(
                f"{field}.backbone: the {backbone.kind} backbone has one value for each name and one more, but the "
                f"action {spec.environment.action.kind} takes others; choose simplex or residual"
            )
        if backbone.needs_window and not observation.has_window:
            raise ValueError(
                f"{field}.backbone: the {backbone.kind} backbone reads a window of returns, but "
                f"environment.observation is {observation.kind}, which has none; choose the lookback observation"
                + (" or the mlp backbone" if "mlp" in self.backbones else "")
            )
        action = spec.environment.action
        if getattr(action, "is_discrete", False) != self.is_discrete:
            needed = "needs choice" if self.is_discrete else "takes any but choice"
            raise ValueError(
                f"environment.action: found {action.kind}, but {kind} {needed}; choose another action or agent"
            )
        if len(spec.seeds) < MIN_SEEDS:
            raise ValueError(
                f"seeds: {kind} learns, and its results need at least {MIN_SEEDS} seeds, but they are "
                f"{list(spec.seeds)}"
            )

    def shorten(self, max_timesteps: int) -> Self:
        """Return a copy whose training has at most so many steps."""
        return self.model_copy(update={"total_timesteps": min(self.total_timesteps, max_timesteps)})

    def train(
        self,
        panel: MarketPanel,
        env: EnvSpec,
        window: Window | Sequence[Window],
        seed: int,
        hooks: TrainingHooks = DEFAULT_HOOKS,
    ) -> Fit:
        """Train on the sessions of `window` (first and last index, inclusive); equal seeds give equal bytes.

        Several windows, in time order, are trained on without the sessions between them; no episode spans two.

        Raises:
            CheckpointError: if the hooks have a checkpoint and this training cannot resume from it.
            ValueError: if the training diverged.
        """
        import torch
        from torch.distributions import Distribution

        from nvtrader_pipelines.envs.simulation import PortfolioSimulation

        windows = normalize_windows(window)
        scaler = self.fit_scaler(panel, env, windows, hooks)
        market = demean_panel(panel, windows) if self.demean_returns else panel
        ends = {"first": windows[0][0], "last": windows[-1][1]}
        simulation = PortfolioSimulation(
            market, env, self.n_portfolios, **ends, stretches=windows, scaler=scaler, pipeline=hooks.pipeline
        )
        torch.set_num_threads(1)
        Distribution.set_default_validate_args(False)
        policy, log = self.learn(simulation, seed, hooks)
        return Fit(
            tensors=finite_tensors(policy), scaler=scaler, curve=log.points, rollouts=log.rollouts, epochs=log.epochs
        )

    def fit_scaler(
        self,
        panel: MarketPanel,
        env: EnvSpec,
        windows: Sequence[Window],
        hooks: TrainingHooks,
    ) -> ObservationScaler:
        """Fit the scaler of observations to the training windows, or take that of the policy it starts from.

        Raises:
            ValueError: if the training must start from a policy and the hooks have none.
        """
        from nvtrader_pipelines.envs.simulation import fit_scaler

        if hooks.start is None and self.start is not None:
            raise ValueError(
                f"a training must start from a policy of run {self.start}, but got none; train it in a run of an "
                "experiment, which reads them, or drop agent.start"
            )
        return hooks.start.scaler if hooks.start else fit_scaler(panel, env.observation, windows)

    @property
    @abstractmethod
    def n_portfolios(self) -> int:
        """Number of parallel portfolios."""

    @abstractmethod
    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[BasePolicy, TrainingLog]":
        """Train a network on the simulation and return it with the log."""

    @abstractmethod
    def policy(self, layout: ObservationLayout) -> "tuple[Callable[..., BasePolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""

    def network(
        self, layout: ObservationLayout, observation_space: "spaces.Box", action_space: "spaces.Space[Any]"
    ) -> "BasePolicy":
        """Build a network for inference, to load a fit's tensors into."""
        policy_class, policy_kwargs = self.policy(layout)
        inference_only = {"optimizer_class": no_optimizer, "optimizer_kwargs": {}}
        policy = policy_class(observation_space, action_space, self.schedule(), **{**policy_kwargs, **inference_only})
        policy.set_training_mode(False)
        return policy

    @abstractmethod
    def act(self, network: Any, observation: "Tensor", state: Any, *, with_estimates: bool = True) -> NetworkOutput:
        """Return the network's deterministic output for an observation (1, length), float32.

        The state is that of the previous output; None at the first decision. Without estimates, value and log
        probability may be None; the action alone takes a third of the time.
        """

    def schedule(self) -> Callable[[float], float]:
        """Return the learning rate as a function of the remaining share of the training: it falls linearly."""
        first, final = self.learning_rate, self.final_learning_rate
        return lambda remaining: first * (final + (1.0 - final) * max(0.0, remaining))  # the last rollout may overshoot

    def prepare(self, policy: "BasePolicy", simulation: "PortfolioSimulation", seed: int, start: Start | None) -> None:
        """Load the tensors of a start, or let the backbone pretrain on the training windows.

        Raises:
            ValueError: if the tensors do not fit the network.
        """
        import torch
        from safetensors.torch import load

        if start is not None:
            try:
                policy.load_state_dict(load(start.tensors))
            except RuntimeError as error:
                raise ValueError(f"a training must start from a policy of its own network, but {error}") from error
            return
        sessions = simulation.sessions
        weights = np.zeros((len(sessions), len(simulation.panel.symbols) + 1))
        weights[:, -1] = 1.0
        observations = simulation.builder.observe(sessions, AccountView(weights, np.zeros(len(sessions))))
        history = TrainingHistory(torch.as_tensor(observations), torch.as_tensor(simulation.next_returns()))
        self.backbone.prepare(policy, history, seed)

    def extractor(self, layout: ObservationLayout) -> tuple[list[int], dict[str, Any]]:
        """Hidden layers of each head, and the policy's keyword arguments for the backbone's extractor."""
        if not isinstance(self.backbone, ExtractorBackbone):
            supported = ", ".join(sorted(self.backbones))
            raise ValueError(f"the agent needs a backbone of {supported}, but has {self.backbone.kind}; choose one")
        return list(self.backbone.hidden), self.backbone.extractor(layout)


def finite_tensors(policy: "BasePolicy") -> "dict[str, Tensor]":
    """Copy the tensors of a trained network.

    Raises:
        ValueError: if one holds a number that is not finite.
    """
    tensors = {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
    broken = next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
    if broken is not None:
        raise ValueError(
            f"a trained network must hold finite numbers, but {broken} does not: the training diverged; "
            "lower learning_rate"
        )
    return tensors


def no_optimizer(*_: Any, **__: Any) -> None:
    """Stand in for an optimizer: the first real one imports PyTorch's compiler, for 1.5 s."""
