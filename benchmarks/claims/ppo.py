"""Steps of PPO per second of a whole training, beside SB3's own update and PPO on a peer's environment."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO

from benchmarks.claim import Goal, import_peer, median_ratio, report, time_rounds
from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.observations import PerAssetObservation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.policies.agents import PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.backbones import SharedAssetBackbone

WINDOW = (300, 5000)  # first and last session of the training
SEED = 0
HOOKS = TrainingHooks(checkpoint=lambda _: None)  # as runs have it
PEERS_STEPS = 4096  # two rollouts of SB3's default length
PEER_NOTE = (
    "ratio of steps per CPU second to SB3's PPO at its defaults (one environment, 2048 steps, batch 64, 10 epochs) on "
    "gym-trading-env at its own: one asset and two positions, so smaller networks and less bookkeeping than 20 names "
    "and cash"
)
DEFAULTS = PpoAgent()
SMALL_BATCHES = PpoAgent(  # the defaults of SB3 and FinRL
    n_envs=64, n_steps=32, batch_size=64, n_epochs=10, learning_rate=3e-4, final_learning_rate=1.0, total_timesteps=4096
)


SHARED = PpoAgent(  # as the shipped `ppo-residual`
    backbone=SharedAssetBackbone(), n_envs=256, n_steps=26, batch_size=3328, n_epochs=6, total_timesteps=66_560
)


class Sb3Ppo(PpoAgent):
    """PPO as SB3 has it."""

    @property
    def algorithm(self) -> type[PPO]:
        """SB3's class."""
        return PPO


def main() -> None:
    """Report steps per CPU second at SB3's and at our settings, and the ratio to a peer."""
    panel = sample_panel()
    narrow = replace(panel, features=np.zeros((*panel.eligible.shape, 0)), feature_names=())  # 422 columns
    residual = EnvSpec(observation=PerAssetObservation(), action=ResidualAction())
    trainings = {
        "defaults": (DEFAULTS, panel, EnvSpec()),
        "small_batches": (SMALL_BATCHES, narrow, EnvSpec()),
        "shared": (SHARED, panel, residual),
    }
    implementations: dict[str, Callable[[int], object]] = {}
    for name, (agent, market, env) in trainings.items():
        for end, trained in (("", agent), ("_sb3", Sb3Ppo(**agent.model_dump()))):
            implementations[name + end] = partial(_train, trained, market, env)
    steps = {name: agent.total_timesteps for name, (agent, _, _) in trainings.items()}
    module = import_peer("gym_trading_env.environments")
    if module is not None:
        implementations["peer"] = lambda _: train_peer(module)
    seconds = time_rounds(implementations, 3, clock=process_time)
    speed = {name: count / min(seconds[name]) for name, count in steps.items()}
    how = (
        "CPU seconds of the whole train(), checkpoints included, best of 3 after one that warms up, "
        f"torch {torch.__version__} on 1 thread"
    )
    sizes = f"{DEFAULTS.n_envs} x {DEFAULTS.n_steps} steps, batch {DEFAULTS.batch_size}, {DEFAULTS.n_epochs} epochs"
    report(
        "ppo_defaults",
        speed["defaults"],
        "steps/s",
        Goal(value_at_least=30_000),
        note=f"20 names, 702 columns, {DEFAULTS.total_timesteps} steps, {sizes}; {how}",
    )
    report(
        "ppo_small_batches",
        speed["small_batches"],
        "steps/s",
        Goal(value_at_least=4_500),
        note="20 names, 422 columns, 64 x 32 steps, batch 64, 10 epochs, which are the defaults of SB3 and FinRL (one "
        f"environment of 2048 steps there); {how}",
    )
    for name, goal in (("small_batches", 2.2), ("defaults", 1.4), ("shared", 1.1)):
        report(
            f"ppo_{name}_against_sb3",
            speed[name],
            "steps/s",
            Goal(ratio_at_least=goal),
            ratio=median_ratio(seconds, f"{name}_sb3", name),
            note="ratio to the same training by SB3's own rollouts and update, on the same network, buffer and seed",
        )
    for name, (goal, settings) in {
        "small_batches": (2.0, "the same rollout, batch and epochs"),
        "defaults": (10.0, f"our defaults, {sizes}"),
    }.items():
        ratio = median_ratio(seconds, "peer", name) * steps[name] / PEERS_STEPS if module else None
        report(
            f"ppo_{name}_against_gym_trading_env",
            speed[name],
            "steps/s",
            Goal(ratio_at_least=goal),
            ratio=ratio,
            note=f"ours at {settings}; {PEER_NOTE}",
        )


def _train(agent: PpoAgent, panel: MarketPanel, env: EnvSpec, _: int) -> None:
    agent.train(panel, env, WINDOW, SEED, HOOKS)


def train_peer(module: Any) -> None:
    """Train SB3's PPO on one asset in gym-trading-env, both with their defaults."""
    import pandas as pd  # the peer's own table

    panel = sample_panel()
    window = slice(WINDOW[0], WINDOW[1] + 1)
    close = 100.0 * np.cumprod(1.0 + panel.close_returns[window, 0])
    prices = pd.DataFrame(dict.fromkeys(("open", "high", "low", "close"), close), index=panel.sessions[window])
    prices["feature_close"] = prices["close"].pct_change().fillna(0.0)
    torch.set_num_threads(1)
    model = PPO("MlpPolicy", module.TradingEnv(prices, verbose=0), seed=SEED, device="cpu")
    model.learn(PEERS_STEPS)


if __name__ == "__main__":
    main()
