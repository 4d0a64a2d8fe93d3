"""CPU seconds to the same Sharpe ratio: the gradient through the market against PPO."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.claim import Goal, report
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.designs import BestOfNDesign
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan, policy_card
from nvtrader_pipelines.experiments.policy_accounts import weigh_seeds
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.policies.agents import Agent, PathwiseAgent, PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.checkpoints import strip_prefix, unpack
from nvtrader_pipelines.policies.archive import write_archive
from nvtrader_pipelines.policies.backbones import SharedAssetBackbone
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.testing.synthetic_panels import synthetic_panel

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "data" / "experiments" / "ppo-residual.yaml"
PICTURE = ROOT / "docs" / "images" / "pathwise.png"
REPORTED_FROM = np.datetime64("2010-01-01")  # all sessions used are before
CORRELATION = 0.3  # of the planted signal with the return it foretells
N_NAMES = (4, 20)  # of planted markets
Plans = Mapping[str, RunPlan]  # by kind of agent


@dataclass(frozen=True, eq=False)
class Curve:
    """Learning curve of an agent, at each tenth of its training."""

    seconds: NDArray[np.float64]  # (K,) of CPU, median of the seeds' means over folds
    sharpe: NDArray[np.float64]  # (K, seeds) validation Sharpe ratio, mean over folds

    @property
    def median(self) -> NDArray[np.float64]:
        """Median Sharpe ratio of the seeds (K,)."""
        return np.median(self.sharpe, axis=1)

    def seconds_to(self, target: float) -> float:
        """CPU seconds at the first tenth with this median Sharpe ratio."""
        return float(self.seconds[np.argmax(self.median >= target)])


def main() -> None:
    """Report CPU seconds on the sample and on planted markets, and draw the curves of the latter."""
    settings = "environment, network, pipeline and PPO of `ppo-residual`; first and last training window before 2010"
    report_seconds("pathwise_sample", race(sample_plans()), f"{settings}, 504 sessions")
    planted = {n_names: race(planted_plans(n_names)) for n_names in N_NAMES}
    for n_names, curves in planted.items():
        settings = f"{n_names} names, a signal that correlates {CORRELATION:.1f} with the next session's return"
        report_seconds(f"pathwise_planted_{n_names}", curves, f"{settings}, 300 sessions")
    draw(planted, PICTURE)


def report_seconds(name: str, curves: Mapping[str, Curve], settings: str) -> None:
    """Report CPU seconds of `pathwise` to the highest Sharpe ratio that both agents reach."""
    ours, peer = curves["pathwise"], curves["ppo"]
    target = float(min(ours.median.max(), peer.median.max()))
    highest = ", ".join(
        f"{kind} {curve.median.max():.2f} within {curve.seconds[-1]:.1f} s" for kind, curve in curves.items()
    )
    report(
        name,
        ours.seconds_to(target),
        "s",
        Goal(ratio_at_most=1.0 / 3.0),
        ratio=ours.seconds_to(target) / peer.seconds_to(target),
        note=f"{settings} held out; CPU seconds of training to a Sharpe ratio of {target:.2f} on held-out sessions, "
        f"the highest that both agents have at a tenth of their trainings (highest: {highest}); median of 3 seeds; "
        f"ratio: to PPO, {peer.seconds_to(target):.2f} s",
    )


def sample_plans() -> Plans:
    """Plans on the sample, before the reported period."""
    market, shipped = sample_panel(), ExperimentSpec.model_validate(yaml.safe_load(SHIPPED.read_text(encoding="utf-8")))
    folds = shipped.splitter.split(market.sessions)
    early = [fold for fold in folds if market.sessions[fold.train_last] < REPORTED_FROM]
    backbone = SharedAssetBackbone()
    ours = PathwiseAgent(total_timesteps=40_960, learning_rate=3e-3, demean_returns=True, backbone=backbone)
    return _plans(market, [early[0], early[-1]], shipped, (ours, shipped.agent), 504)


def planted_plans(n_names: int) -> Plans:
    """Plans on a market with a noisy signal of the next session's returns."""
    market = synthetic_panel(1000, n_names, seed=5, opens=False)
    returns = market.close_returns - market.close_returns.mean(axis=0)
    noise = np.random.default_rng(0).normal(0.0, returns.std(), returns.shape)
    signal = CORRELATION * np.roll(returns, -1, axis=0) + np.sqrt(1.0 - CORRELATION**2) * noise
    market = replace(market, close_returns=returns, features=signal[:, :, None], feature_names=("signal",))
    growth = {"vol_penalty": 0.0, "rewards": (LogGrowth(weight=100.0),)}  # a scale that PPO learns from sooner
    environment = EnvSpec(lookback=5, episode_len=20, rebal_freq=1, fill="same_close", **growth)
    pipeline = WeightPipeline(risk_limits=RiskLimits(max_position=1.0))
    spec = ExperimentSpec(name="planted", environment=environment, pipeline=pipeline)
    ours = PathwiseAgent(total_timesteps=20_480, n_steps=4, learning_rate=1e-2)
    peer = PpoAgent(total_timesteps=81_920, batch_size=512, n_epochs=6, gamma=0.0, learning_rate=3e-3, log_std_init=0.0)
    return _plans(market, [Fold(0, 5, 997, 998, 999)], spec, (ours, peer), 300)


def _plans(
    market: MarketPanel, folds: Sequence[Fold], like: ExperimentSpec, agents: Sequence[Agent], n_held_out: int
) -> Plans:
    changes = {"design": BestOfNDesign(validation_sessions=n_held_out)}
    specs = {agent.kind: like.model_copy(update={**changes, "agent": agent}) for agent in agents}
    return {kind: RunPlan(spec, market, panel_digest(market), tuple(folds)) for kind, spec in specs.items()}


def race(plans: Plans) -> dict[str, Curve]:
    """Train the agents in turn on each fold and seed, after a training that compiles, and validate every tenth."""
    keys, spent, files = plans["ppo"].keys, {kind: [] for kind in plans}, {kind: [] for kind in plans}
    for key in (keys[0], *keys):
        for kind, plan in plans.items():
            seconds, archives = train(plan, key)
            spent[kind].append(seconds)
            files[kind].append(archives)
    curves = {}
    for kind, plan in plans.items():
        tenths = [dict(zip(keys, archives, strict=True)) for archives in zip(*files[kind][1:], strict=True)]
        sharpe = [[list(weigh_seeds(plan, tenth, fold).sharpe.values()) for fold in plan.folds] for tenth in tenths]
        seconds = np.reshape(spent[kind][1:], (len(plan.folds), len(plan.spec.seeds), -1)).mean(axis=0)
        curves[kind] = Curve(np.median(seconds, axis=0), np.mean(sharpe, axis=1))
    return curves


def train(plan: RunPlan, key: FoldSeed) -> tuple[list[float], list[bytes]]:
    """CPU seconds of a training, checkpoints included, and the policy file, at each tenth."""
    task, checkpoints = plan.task(key), []
    began = process_time()
    hooks = TrainingHooks(checkpoint=lambda content: checkpoints.append((process_time() - began, content)))
    fit = task.agent.train(plan.panel, task.environment, task.window, task.seed, hooks)
    seconds = [*(second for second, _ in checkpoints), process_time() - began]
    networks = [*(strip_prefix("policy", unpack(content)[0]) for _, content in checkpoints), fit.tensors]
    card = policy_card(plan, task, fit)
    return seconds, [write_archive(card, tensors) for tensors in networks]


def draw(planted: Mapping[int, Mapping[str, Curve]], picture: Path) -> None:
    """Draw the Sharpe ratio of each agent over CPU seconds by number of names: the median, and all seeds as dots."""
    note = (
        "Annual Sharpe ratio, net of costs, on 300 sessions after the training window, at each tenth of a training on "
        "one torch thread. Lines: medians of three seeds; dots: the seeds."
    )
    figure = new_figure("Sharpe ratio against CPU seconds, on markets with a planted signal", note)
    for left, (n_names, curves) in zip((0.06, 0.55), planted.items(), strict=True):
        axes, labels = panel(figure, left, 0.2, left + 0.34, 0.84), []
        for (kind, curve), color in zip(curves.items(), (theme.BLUE, theme.VERMILION), strict=True):
            axes.plot(curve.seconds, curve.median, color=color, linewidth=2.5)
            axes.plot(curve.seconds, curve.sharpe, "o", color=color, alpha=0.5)
            labels.append(EndLabel(float(curve.median[-1]), kind, color, bold=True))
        axes.set_title(f"{n_names} names", fontsize=theme.TEXT, loc="left")
        axes.set(xlabel="CPU seconds of training", ylabel="Sharpe ratio")
        axes.set_xlim(0.0, 1.03 * max(curve.seconds[-1] for curve in curves.values()))
        label_ends(axes, labels)
    picture.write_bytes(Picture(figure).png())


if __name__ == "__main__":
    main()
