"""Agents: a family of learners; `PpoAgent` trains Stable-Baselines3's PPO on the native vector environment."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from torch.distributions import Distribution

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.networks import MlpNetwork, Network
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv

CURVE_POINTS = 200
CurvePoint = tuple[int, float]  # timesteps, mean reward of a step


@dataclass(frozen=True, eq=False)
class Fit:
    """What training gave: the network's tensors, the observation's scaler, the learning curve."""

    tensors: dict[str, torch.Tensor]
    scaler: ObservationScaler
    curve: list[CurvePoint]  # at most CURVE_POINTS


class PpoAgent(Component):
    """Proximal policy optimisation (Schulman et al. 2017) from Stable-Baselines3, on one torch thread."""

    kind: Literal["ppo"] = "ppo"
    total_timesteps: PositiveInt = 30_000
    n_envs: PositiveInt = 64
    n_steps: Annotated[int, Field(ge=8, le=4096)] = 64  # per environment and update
    batch_size: Annotated[int, Field(ge=32)] = 2048
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 4
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 1e-3
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05  # share of the first left at the end
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    gae_lambda: Annotated[float, Field(ge=0.0, le=1.0)] = 0.9
    clip_range: PositiveFloat = 0.2
    ent_coef: NonNegativeFloat = 0.0
    vf_coef: NonNegativeFloat = 0.5
    max_grad_norm: PositiveFloat = 0.5
    log_std_init: float = -0.5
    demean_returns: bool = False  # each name's mean log return becomes the cross-section's, in training only
    network: Network = MlpNetwork()

    @model_validator(mode="after")
    def _batches_fill(self) -> Self:
        rollout = self.n_envs * self.n_steps
        if rollout % self.batch_size:
            raise ValueError(
                f"n_envs * n_steps = {rollout} must be a multiple of batch_size = {self.batch_size}; "
                "a truncated minibatch would be noisier than the rest"
            )
        return self

    def train(
        self,
        panel: MarketPanel,
        env: EnvSpec,
        window: tuple[int, int],
        seed: int,
        report: Callable[[CurvePoint], None] = lambda _: None,
    ) -> Fit:
        """Train on the sessions of `window` (first and last index, inclusive); the same seed gives the same bytes."""
        first, last = window
        scaler = env.observation.fit(panel, first, last)
        known = demeaned(panel, first, last) if self.demean_returns else panel
        simulation = PortfolioSimulation(known, env, self.n_envs, first=first, last=last, scaler=scaler)
        model = self._model(PortfolioVecEnv(simulation, seed), seed)
        model.set_logger(Logger(None, []))  # SB3's own would leave a folder behind per run
        curve = LearningCurve(report)
        model.learn(self.total_timesteps, callback=curve)
        tensors = {name: tensor.detach().clone() for name, tensor in model.policy.state_dict().items()}
        return Fit(tensors=tensors, scaler=scaler, curve=thin(curve.points, CURVE_POINTS))

    def _model(self, env: PortfolioVecEnv, seed: int) -> PPO:
        torch.set_num_threads(1)
        Distribution.set_default_validate_args(False)
        policy, policy_kwargs = self.network.policy(self.log_std_init)
        final = self.final_learning_rate
        return PPO(
            policy,
            env,
            learning_rate=lambda remaining: self.learning_rate * (final + (1.0 - final) * remaining),
            n_steps=self.n_steps,
            batch_size=self.batch_size,
            n_epochs=self.n_epochs,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            clip_range=self.clip_range,
            ent_coef=self.ent_coef,
            vf_coef=self.vf_coef,
            max_grad_norm=self.max_grad_norm,
            policy_kwargs=policy_kwargs,
            seed=seed,
            device="cpu",
        )


Agent = Annotated[PpoAgent, Field()]


class LearningCurve(BaseCallback):
    """Mean reward of a step over each rollout, before PPO adds the critic's value to the rewards of truncated steps."""

    def __init__(self, report: Callable[[CurvePoint], None]) -> None:
        super().__init__()
        self.points: list[CurvePoint] = []
        self._report = report
        self._rewards: list[float] = []

    def _on_step(self) -> bool:
        self._rewards.append(float(np.mean(self.locals["rewards"], dtype=np.float64)))
        return True

    def _on_rollout_end(self) -> None:
        point = (int(self.num_timesteps), float(np.mean(self._rewards)))
        self._rewards.clear()
        self.points.append(point)
        self._report(point)


def thin(points: list[CurvePoint], most: int) -> list[CurvePoint]:
    """At most `most` points, evenly spaced, with the first and the last."""
    if len(points) <= most:
        return points
    return [points[round(i)] for i in np.linspace(0, len(points) - 1, most)]


def demeaned(panel: MarketPanel, first: int, last: int) -> MarketPanel:
    """The panel with each name's mean log return over `first..last` replaced by the mean of all names.

    Keeps a policy from learning which names won. Only for training: it knows the whole window.
    """
    window = slice(first, last + 1)
    growth = np.log1p(panel.close_returns)
    known = panel.tradable[window]
    counted = known.sum(axis=0)
    own = np.where(known, growth[window], 0.0).sum(axis=0) / np.maximum(counted, 1)
    common = own[counted > 0].mean()
    shifted = np.expm1(np.where(panel.tradable, growth - own + common, growth))
    return replace(panel, close_returns=shifted)
