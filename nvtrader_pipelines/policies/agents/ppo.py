"""Stable-Baselines3's PPO on the native vector environment."""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from stable_baselines3 import PPO
from torch.distributions import Distribution

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents.checkpoints import learn
from nvtrader_pipelines.policies.agents.demeaning import demeaned
from nvtrader_pipelines.policies.agents.fit import DEFAULT_HOOKS, Fit, TrainingHooks
from nvtrader_pipelines.policies.backbones import Backbone, MlpBackbone
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv


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
    backbone: Backbone = MlpBackbone()

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
        hooks: TrainingHooks = DEFAULT_HOOKS,
    ) -> Fit:
        """Train on the sessions of `window` (first and last index, inclusive); the same seed gives the same bytes."""
        first, last = window
        scaler = env.observation.fit(panel, first, last)
        known = demeaned(panel, first, last) if self.demean_returns else panel
        simulation = PortfolioSimulation(known, env, self.n_envs, first=first, last=last, scaler=scaler)
        venv = PortfolioVecEnv(simulation, seed)
        model = self._model(venv, seed)
        log = learn(model, venv, self.total_timesteps, hooks, seed)
        tensors = {name: tensor.detach().clone() for name, tensor in model.policy.state_dict().items()}
        return Fit(tensors=tensors, scaler=scaler, curve=log.points, rollouts=log.rollouts)

    def _model(self, env: PortfolioVecEnv, seed: int) -> PPO:
        torch.set_num_threads(1)
        Distribution.set_default_validate_args(False)
        policy, policy_kwargs = self.backbone.actor_critic(env.simulation.builder.layout, self.log_std_init)
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
