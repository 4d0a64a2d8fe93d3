"""Trajectory rows per second of a sampler and a recorder, and the cost of sampling."""

from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.claim import Goal, report, time_rounds
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, Recorder, WalkStep, walk
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.policies.agents import PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.sampling import EpisodeSampler
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.policies.trajectory import PlayedStep
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv

WINDOW = (300, 5000)  # first and last session
N_PORTFOLIOS, N_STEPS = 64, 512
N_ACCOUNTS = 16
SPEC = EnvSpec()
AGENT = PpoAgent()
RATES = {"none": 0.0, "all": 1.0}
N_ROUNDS = 7


class Scripted:
    """Policy with predetermined weights and the outputs of a learned policy."""

    def __init__(self, panel: MarketPanel, seed: int) -> None:
        n_weights = len(panel.symbols) + 1
        targets = np.random.default_rng(seed).dirichlet(np.ones(n_weights), len(panel.sessions))
        self._decisions = [Decision(target, target.astype(np.float32), 1, 0.5, -1.0) for target in targets]

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 - a policy's signature
        """Return the predetermined decision of the session."""
        return self._decisions[t]


def main() -> None:
    """Report rows per CPU second, and the ratios of sampled to unsampled trainings."""
    panel = sample_panel()
    simulation = PortfolioSimulation(panel, SPEC, N_PORTFOLIOS, first=WINDOW[0], last=WINDOW[1])
    game = random_game(simulation)
    who, steps = scripted_walk(panel)
    n_rows = {"sampler": sample(simulation, game), "recorder": record(panel, who, steps)}
    writers = {
        "sampler": lambda _: sample(simulation, game),
        "recorder": lambda _: record(panel, who, steps),
    }
    seconds = time_rounds(writers, 5, clock=process_time)
    speed = {name: n / min(seconds[name]) for name, n in n_rows.items()}
    how = "rows per CPU second, best of 5, all threads of the process counted"
    sizes = f"{N_PORTFOLIOS} portfolios by {N_STEPS} steps, 20 names, every episode taken, hashed and compressed"
    report("rows_sampler", speed["sampler"], "rows/s", Goal(value_at_least=200_000), note=f"{sizes}; {how}")
    sizes = f"{N_ACCOUNTS} accounts by {len(steps)} steps of 5 sessions, 20 names, into four tables"
    report("rows_recorder", speed["recorder"], "rows/s", Goal(value_at_least=200_000), note=f"{sizes}; {how}")
    trainings = {name: lambda _, rate=rate: train(panel, rate) for name, rate in RATES.items()}
    seconds = time_rounds(trainings, N_ROUNDS, clock=process_time)
    fastest = {name: min(times) for name, times in seconds.items()}
    sizes = f"PPO, {AGENT.total_timesteps} steps by {AGENT.n_envs} portfolios, 20 names, with its checkpoints"
    report(
        "rows_training_all",
        AGENT.total_timesteps / fastest["all"],
        "steps/s",
        Goal(ratio_at_most=1.15),
        ratio=fastest["all"] / fastest["none"],
        note=f"{sizes}; ratio of CPU seconds with every episode sampled to those with none, best of {N_ROUNDS} each",
    )
    shares = {rate: median(share_of_sampler(panel, rate) for _ in range(N_ROUNDS)) for rate in (0.0, 0.01)}
    report(
        "rows_training_hundredth",
        100.0 * shares[0.01],
        "%",
        Goal(ratio_at_most=1.02),
        ratio=(1.0 - shares[0.0]) / (1.0 - shares[0.01]),
        note=f"{sizes}; the sampler's share of the CPU seconds with a hundredth of the episodes sampled, median of "
        f"{N_ROUNDS}; ratio of the training to one with none, from the shares, since whole trainings differ by more",
    )


def random_game(simulation: PortfolioSimulation) -> list[PlayedStep]:
    """Steps of an episode with random actions."""
    env, generator = PortfolioVecEnv(simulation), np.random.default_rng(0)
    env.reset()
    game = []
    for _ in range(N_STEPS):
        env.step(generator.standard_normal((N_PORTFOLIOS, *(env.action_space.shape or ()))).astype(np.float32))
        game.append(env.last_step)
    return game


def sample(simulation: PortfolioSimulation, game: list[PlayedStep]) -> int:
    """Sample all episodes of the game; return the number of rows."""
    sampler, zeros = EpisodeSampler(simulation, 1.0, 0), torch.zeros(N_PORTFOLIOS)
    for step in game:
        sampler.record(step, zeros, zeros)
    sampler.rollouts()
    return N_PORTFOLIOS * len(game)


def scripted_walk(panel: MarketPanel) -> tuple[list[PolicyAccount], list[WalkStep]]:
    """Accounts of scripted policies, and the steps of their walk."""
    fold = Fold(0, WINDOW[0], WINDOW[0] + 1, WINDOW[0] + 2, WINDOW[1])
    who = [PolicyAccount(f"account-{i}", "policy", (i,), (Scripted(panel, i),)) for i in range(N_ACCOUNTS)]
    return who, list(walk(panel, SPEC, [fold], who))


def record(panel: MarketPanel, who: list[PolicyAccount], steps: list[WalkStep]) -> int:
    """Record the walk; return the number of rows in its four tables."""
    recorder = Recorder(panel, who, "test")
    for step in steps:
        recorder.record(step)
    tables = recorder.tables()
    return sum(map(len, vars(tables).values()))


def train(panel: MarketPanel, rate: float) -> None:
    """Train with a share of the episodes sampled."""
    AGENT.train(panel, SPEC, WINDOW, 0, TrainingHooks(checkpoint=lambda _: None, sample_rate=rate))


def share_of_sampler(panel: MarketPanel, rate: float) -> float:
    """Share of a training's CPU seconds that the sampler takes."""
    spent = [0.0]

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start = process_time()
            result = method(*arguments)
            spent[0] += process_time() - start
            return result

        return run

    with ExitStack() as patched:
        for name in ("record", "state", "rollouts"):
            patched.enter_context(patch.object(EpisodeSampler, name, timed(getattr(EpisodeSampler, name))))
        start = process_time()
        train(panel, rate)
        return spent[0] / (process_time() - start)


if __name__ == "__main__":
    main()
