"""Learning curves of PPO by rollout, minibatch, epochs and learning rate over CPU seconds."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from time import process_time

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.claim import Goal, report
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.policies.agents import PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.checkpoints import strip_prefix, unpack

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "learning-curves.png"
REPORTED_FROM = np.datetime64("2010-01-01")  # no setting is chosen on sessions from here on
SEEDS = (0, 1, 2)
N_EPISODES = 32  # of an evaluation, with starts spread evenly over its window
UNIT = 1e4  # rewards are shown in basis points of equity
Window = tuple[int, int]  # first and last session


@dataclass(frozen=True)
class Setting:
    """Varied settings of PPO, compared at the CPU seconds of the fastest; others are defaults."""

    n_envs: int
    n_steps: int
    batch_size: int
    n_epochs: int
    learning_rate: float
    total_timesteps: int

    def agent(self) -> PpoAgent:
        """PPO in this setting."""
        return PpoAgent(**asdict(self))

    @property
    def is_default(self) -> bool:
        """Whether these are PPO's default settings."""
        return self.agent() == PpoAgent(total_timesteps=self.total_timesteps)

    def __str__(self) -> str:
        """Rollout / minibatch / epochs, and the learning rate."""
        name = f"{self.n_envs} x {self.n_steps} / {self.batch_size} / {self.n_epochs}, rate {self.learning_rate:g}"
        return name + (" (default)" if self.is_default else LABELS.get(self, ""))


LIBRARY = Setting(64, 32, 64, 10, 3e-4, 12_288)
FORMER = Setting(64, 64, 2048, 4, 1e-3, 61_440)
LABELS = {LIBRARY: " (SB3's sizes and rate)", FORMER: " (former)"}
SETTINGS = (
    LIBRARY,
    FORMER,
    Setting(64, 64, 2048, 3, 3e-3, 73_728),
    Setting(128, 16, 1024, 2, 3e-3, 90_112),
    Setting(64, 16, 512, 2, 3e-3, 81_920),
    Setting(64, 16, 256, 1, 3e-3, 81_920),
    Setting(64, 16, 1024, 2, 3e-3, 86_016),
    Setting(64, 16, 1024, 1, 5e-3, 114_688),
)


@dataclass(frozen=True)
class Task:
    """One training: setting, windows and seed."""

    setting: Setting
    trained_on: Window
    held_out: Window
    seed: int


@dataclass(frozen=True, eq=False)
class Curve:
    """Learning curve of one training."""

    task: Task
    timesteps: NDArray[np.int64]  # (K,) at its start, at its checkpoints and at its end
    rewards: NDArray[np.float64]  # (K, 2) mean reward of a step: of sessions trained on, of those held out
    cpu_seconds: float  # of the whole training, without its evaluations


def main() -> None:
    """Train every setting on all windows and seeds, draw the curves, report the default's gain."""
    tasks = [Task(setting, *fold, seed) for seed in SEEDS for fold in folds() for setting in SETTINGS]
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=context) as pool:
        curves = list(pool.map(train_curve, tasks))
    draw(curves, PICTURE)
    default = next(setting for setting in SETTINGS if setting.is_default)
    end = min(seconds(curves, setting)[-1] for setting in SETTINGS)
    ours, theirs = (gains_at(curves, setting, end) for setting in (default, LIBRARY))
    how = (
        f"mean reward of a step without exploring, in basis points, after {end:.1f} CPU seconds of training on one "
        f"torch thread, less that of the untrained policy; {len(folds())} windows before 2010 x {len(SEEDS)} seeds; "
        f"ratio: the difference to SB3's sizes and rate ({LIBRARY}) in its standard errors, paired"
    )
    for column, what, bound in ((0, "training", 2.0), (1, "held_out", -2.0)):
        difference = ours[:, column] - theirs[:, column]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        report(
            f"ppo_learning_{what}_sessions",
            float(ours[:, column].mean()),
            "bps",
            Goal(ratio_at_least=bound),
            ratio=float(difference.mean() / error),
            note=f"{default} on {what.replace('_', '-')} sessions: {how}",
        )


def folds() -> list[tuple[Window, Window]]:
    """First and last training window of nine years before 2010, each with its three-year test."""
    sessions = sample_panel().sessions
    every = WalkForward(first_test=date(2001, 1, 1)).split(sessions)
    early = [fold for fold in every if sessions[fold.test_last] < REPORTED_FROM]
    return [((fold.train_first, fold.train_last), (fold.test_first, fold.test_last)) for fold in (early[0], early[-1])]


def train_curve(task: Task) -> Curve:
    """Train one policy and evaluate it before, at its checkpoints and after."""
    torch.set_num_threads(1)
    agent, judge = task.setting.agent(), _Judge(task)
    began = process_time()
    hooks = TrainingHooks(checkpoint=judge.checkpoint)
    fit = agent.train(sample_panel(), EnvSpec(), task.trained_on, task.seed, hooks)
    spent = process_time() - began - judge.cpu_seconds
    judge.judge(task.setting.total_timesteps, fit.tensors)
    return Curve(task, np.array(judge.timesteps), np.array(judge.rewards), spent)


class _Judge:
    """Evaluation of a policy during its training, without exploration."""

    def __init__(self, task: Task) -> None:
        self.timesteps: list[int] = []
        self.rewards: list[list[float]] = []
        self._agent, self._windows = task.setting.agent(), (task.trained_on, task.held_out)
        self._scaler = EnvSpec().observation.fit(sample_panel(), *task.trained_on)
        simulation = open_episodes(task.trained_on, self._scaler)
        self._layout = simulation.builder.layout
        self._spaces = observation_space(simulation), action_space(simulation)
        torch.manual_seed(task.seed)  # as at the start of the training
        self.judge(0, dict(self._agent.network(self._layout, *self._spaces).state_dict()))
        self.cpu_seconds = 0.0

    def checkpoint(self, content: bytes) -> None:
        """Evaluate a checkpoint and add up the CPU seconds that takes."""
        began = process_time()
        arrays, facts = unpack(content)
        with torch.random.fork_rng(devices=[]):  # evaluations must not change the training
            self.judge(facts["timesteps"], strip_prefix("policy", arrays))
        self.cpu_seconds += process_time() - began

    def judge(self, timesteps: int, tensors: dict[str, Tensor]) -> None:
        """Evaluate the policy on both windows."""
        network = self._agent.network(self._layout, *self._spaces)
        network.load_state_dict(tensors)
        network.set_training_mode(False)
        self.timesteps.append(timesteps)
        self.rewards.append([self._played(network, window) for window in self._windows])

    def _played(self, network: torch.nn.Module, window: Window) -> float:
        simulation, rewards = open_episodes(window, self._scaler), []
        observation = simulation.observe()
        for _ in range(simulation.spec.episode_len):
            with torch.no_grad():
                action = network(torch.as_tensor(observation), deterministic=True)[0].numpy()
            step = simulation.step(np.clip(action, self._spaces[1].low, self._spaces[1].high))
            rewards.append(step.reward.mean())
            observation = step.observation
        return float(np.mean(rewards))


def open_episodes(window: Window, scaler: ObservationScaler) -> PortfolioSimulation:
    """Open episodes within a window, with evenly spaced starts."""
    env, (first, last) = EnvSpec(), window
    simulation = PortfolioSimulation(sample_panel(), env, N_EPISODES, first=first, last=last, scaler=scaler)
    starts = np.linspace(first, last - env.rebal_freq * env.episode_len, N_EPISODES).astype(int)
    simulation.accounts.open(list(range(N_EPISODES)), starts.tolist())
    return simulation


def seconds(curves: Sequence[Curve], setting: Setting) -> NDArray[np.float64]:
    """CPU seconds at each point of a setting's curves (K,), from its fastest training."""
    own = [curve for curve in curves if curve.task.setting == setting]
    return own[0].timesteps / own[0].timesteps[-1] * min(curve.cpu_seconds for curve in own)


def gains(curves: Sequence[Curve], setting: Setting) -> NDArray[np.float64]:
    """Gain of each training over the untrained policy, in basis points (trainings, K, 2)."""
    rewards = np.array([curve.rewards for curve in curves if curve.task.setting == setting])
    return UNIT * (rewards - rewards[:, :1])


def gains_at(curves: Sequence[Curve], setting: Setting, second: float) -> NDArray[np.float64]:
    """Gains at a second of training, linearly interpolated (trainings, 2)."""
    at, found = seconds(curves, setting), gains(curves, setting)
    return np.array([[np.interp(second, at, each[:, column]) for column in (0, 1)] for each in found])


def draw(curves: Sequence[Curve], picture: Path) -> None:
    """Draw the mean gain of each setting over CPU seconds, on training and held-out sessions."""
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(10.0, 5.6), layout="constrained")
        sides = figure.subplots(1, 2)
        for column, (side, name) in enumerate(zip(sides, ("trained on", "after them, held out"), strict=True)):
            _draw_side(side, curves, column)
            side.set_title(f"Sessions {name}", loc="left")
            side.set_xlabel("CPU seconds of training, one torch thread")
        sides[0].set_ylabel("gain in mean reward of a step, basis points")
        figure.legend(
            *sides[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=2,
            frameon=False,
            title="portfolios x steps / minibatch / epochs",
        )
        figure.suptitle(
            "What PPO gains by its sizes and learning rate, against the CPU seconds of training\n"
            f"(means of {len(folds())} windows before 2010 x {len(SEEDS)} seeds; band and bars: standard error)",
            x=0.01,
            ha="left",
        )
        figure.savefig(picture, dpi=110, metadata={"Software": None})


def _draw_side(side: Axes, curves: Sequence[Curve], column: int) -> None:
    for setting in SETTINGS:
        found = gains(curves, setting)[:, :, column]
        at, mean = seconds(curves, setting), found.mean(axis=0)
        width = 3.0 if setting.is_default else 1.2
        (line,) = side.plot(at, mean, label=str(setting), linewidth=width, zorder=3 if setting.is_default else 2)
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        side.errorbar(at[-1:], mean[-1:], error[-1:], color=line.get_color(), linewidth=1.0, capsize=3.0)
        if setting.is_default:
            side.fill_between(at, mean - error, mean + error, color=line.get_color(), alpha=0.2, linewidth=0)
    side.axhline(0.0, color="0.7", linewidth=0.8, zorder=1)


if __name__ == "__main__":
    main()
