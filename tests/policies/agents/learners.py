"""Small Stable-Baselines3 models on the vector environment, for tests of what watches and saves them."""

from sb3_contrib import RecurrentPPO
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import (
    DrawdownTermination,
    MarginCallTermination,
    RiskBreachTermination,
    StopProperly,
)
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import TrainingHooks
from nvtrader_pipelines.policies.agents.checkpoints import learn
from nvtrader_pipelines.policies.agents.training_log import TrainingLog
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv
from tests.contracts.families import defaults
from tests.policies.small_learners import SPEC, WINDOW

N, TOTAL = 6, 960
EVERYTHING = EnvSpec(
    lookback=5,
    episode_len=20,
    rebal_freq=5,
    vol_penalty=0.0,
    rewards=tuple(defaults("reward_term")),
    costs=tuple(model for model in defaults("cost_model") if model.kind != "proportional"),
    terminations=(
        DrawdownTermination(limit=0.06),
        MarginCallTermination(maintenance=0.95, truncates=False),
        RiskBreachTermination(max_weight=0.75),
    ),
    stop_properly=StopProperly(),
)
CPU = {"device": "cpu"}


def small(**network):
    """A tiny network; SB3 writes into what it is given."""
    return {"net_arch": [8], **network}


def ppo(env: PortfolioVecEnv, seed: int, **settings) -> BaseAlgorithm:
    """A PPO whose learning rate falls to nothing over the training."""
    shape = {"n_steps": 16, "batch_size": 48, "n_epochs": 2, "learning_rate": lambda left: 1e-3 * left}
    return PPO("MlpPolicy", env, seed=seed, **{**CPU, "policy_kwargs": small(), **shape, **settings})


def a2c(env: PortfolioVecEnv, seed: int, **settings) -> BaseAlgorithm:
    """An A2C with RMSprop as TensorFlow has it."""
    return A2C("MlpPolicy", env, n_steps=8, seed=seed, policy_kwargs=small(), **CPU, **settings)


def recurrent_ppo(env: PortfolioVecEnv, seed: int) -> BaseAlgorithm:
    """A PPO with an LSTM for the actor and one for the critic."""
    network = small(lstm_hidden_size=8)
    return RecurrentPPO(
        "MlpLstmPolicy", env, n_steps=16, batch_size=48, n_epochs=2, seed=seed, policy_kwargs=network, **CPU
    )


def sac(env: PortfolioVecEnv, seed: int) -> BaseAlgorithm:
    """A SAC, which keeps a replay buffer."""
    return SAC(
        "MlpPolicy", env, buffer_size=500, batch_size=16, learning_starts=30, seed=seed, policy_kwargs=small(), **CPU
    )


def environment(panel: MarketPanel, spec: EnvSpec = SPEC, seed: int = 0, n: int = N, window=WINDOW) -> PortfolioVecEnv:
    """n portfolios on the window."""
    return PortfolioVecEnv(PortfolioSimulation(panel, spec, n, first=window[0], last=window[1]), seed)


def trained(
    make, panel: MarketPanel, hooks: TrainingHooks | None = None, *, seed: int = 0, total: int = TOTAL, **where
) -> tuple[BaseAlgorithm, TrainingLog]:
    """The model after its training, and the training's log."""
    env = environment(panel, seed=seed, **where)
    model = make(env, seed)
    return model, learn(model, env, total, hooks or TrainingHooks(), seed)


def bits(model: BaseAlgorithm) -> dict[str, bytes]:
    """Every tensor of the network."""
    return {name: tensor.numpy().tobytes() for name, tensor in model.policy.state_dict().items()}
