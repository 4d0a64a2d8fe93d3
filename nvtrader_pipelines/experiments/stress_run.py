"""Stress test of a run: its policies and baselines on every stressed market."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl

from nvtrader_pipelines.evaluation.backtest import PolicyAccount
from nvtrader_pipelines.evaluation.step_generators import Steps
from nvtrader_pipelines.evaluation.stress.scenario import OutOfSample, PanelChoice, ScenarioUnavailable, StressedMarket
from nvtrader_pipelines.evaluation.stress.suite import StressTest, apply_scenarios
from nvtrader_pipelines.evaluation.stress.verdict import AccountFactory, stress_steps
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.policy_accounts import Archives, FoldThresholds, SeedWeights, build_accounts
from nvtrader_pipelines.experiments.progress import Progress, Stage
from nvtrader_pipelines.experiments.spec import ExperimentSpec


def out_of_sample(plan: RunPlan) -> tuple[OutOfSample, ...]:
    """Test blocks of a run, each with the training spans of the policies that decide in it."""
    days = [session.item() for session in plan.panel.sessions]
    deciding = zip(*plan.deciding, strict=True)  # per block, a fold per path
    return tuple(
        OutOfSample(
            fold=block.index,
            first=days[block.test_first],
            last=days[block.test_last],
            trained=tuple((days[first], days[last]) for fold in folds for first, last in fold.train),
        )
        for block, folds in zip(plan.paths.blocks, deciding, strict=True)
    )


def stressed_accounts(
    plan: RunPlan, archives: Archives, seed_weights: SeedWeights, thresholds: FoldThresholds
) -> AccountFactory:
    """Return a factory of the run's accounts, with policies opened on a stressed market.

    The market may have other prices than the one the policies were trained on, not other names or features.

    Raises:
        PolicyArchiveError: in the factory, if the market's symbols or features are not those of the policies.
    """

    def build(stressed: StressedMarket) -> list[PolicyAccount]:
        indices = [block.index for block in stressed.blocks]
        one_path = len(plan.deciding) == 1
        folds = tuple(fold for fold in plan.folds if fold.index in indices) if one_path else plan.folds
        # the panel digest stays that of training, by which a run knows its archives
        stressed_plan = replace(plan, panel=stressed.panel, folds=folds)
        positions = {block.index: i for i, block in enumerate(stressed_plan.paths.blocks)}
        deciding = [positions[index] for index in indices]
        return [
            replace(
                account,
                seeds=tuple(account.seeds[i] for i in deciding),
                policies=tuple(account.policies[i] for i in deciding),
            )
            for account in build_accounts(stressed_plan, archives, seed_weights, thresholds)
        ]

    return build


def standard_stress_test(spec: ExperimentSpec) -> StressTest:
    """Standard stress test with the history that an experiment's rules and pipeline look back on."""
    return StressTest().with_history(max(part.lookback for part in (spec.pipeline, spec.agent, *spec.all_baselines)))


@dataclass(frozen=True, eq=False)
class StressRun:
    """One execution of a run's stress test, with progress per market."""

    plan: RunPlan
    returns: pl.DataFrame  # rows of `gold.returns` that the run's panel was built from
    build_accounts: AccountFactory
    task_id: str
    clock: Callable[[], datetime]  # current time, UTC
    series: pl.DataFrame | None = None  # rows of `silver.series` that the features read

    def steps(self, stress: StressTest) -> Generator[Progress, None, pl.DataFrame]:
        """Play every scenario, yield progress and return the table (`STRESS`).

        Raises:
            ValueError: if the run has no test sessions in which a shock fits.
        """
        plan, market = self.plan, self.plan.spec.market
        choice = PanelChoice(plan.panel.calendar, plan.panel.symbols, market.max_gap, market.features, self.series)
        markets = apply_scenarios(self.returns, out_of_sample(plan), stress, choice, plan.panel)
        steps = Steps(stress_steps(plan.spec.environment, markets, self.build_accounts))
        n_markets, n_played = stress.n_markets, 0
        yield self._progress("start", f"{plan.spec.partition_key}: {n_markets} stressed markets", share=0.0)
        for n_done, stressed in enumerate(steps, start=1):
            n_played += not isinstance(stressed, ScenarioUnavailable)
            yield self._progress("evaluate.step", _describe(stressed), share=min(1.0, n_done / n_markets))
        yield self._progress("done", f"{n_played} stressed markets were played", share=1.0)
        return steps.result

    def _progress(self, stage: Stage, message: str, **more: Any) -> Progress:
        run_id, at = self.plan.run_id, self.clock()
        return Progress(task_id=self.task_id, run_id=run_id, stage=stage, message=message, timestamp=at, **more)


def _describe(stressed: StressedMarket | ScenarioUnavailable) -> str:
    if isinstance(stressed, ScenarioUnavailable):
        return f"{stressed.scenario}: not played, {stressed.note}"
    days = stressed.panel.sessions
    return f"{stressed.scenario}: {days[stressed.first]} to {days[stressed.last]}"
