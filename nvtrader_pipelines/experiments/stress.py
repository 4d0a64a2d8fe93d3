"""The stress test of a run: its own policies, opened on each stressed market, beside its baselines."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl

from nvtrader_pipelines.evaluation.backtest import Contestant
from nvtrader_pipelines.evaluation.steps import Steps
from nvtrader_pipelines.evaluation.stress.scenario import NoWorld, OutOfSample, StressedWorld
from nvtrader_pipelines.evaluation.stress.scenarios import StressTest, stressed_worlds
from nvtrader_pipelines.evaluation.stress.verdict import Contest, stress_steps
from nvtrader_pipelines.experiments.accounts import Archives, FoldThresholds, contestants
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress, Stage
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.baselines import ClassicalAgent


def out_of_sample(plan: RunPlan) -> tuple[OutOfSample, ...]:
    """The blocks that a run tests, each with the sessions on which a policy was trained that decides in it."""
    days = [session.item() for session in plan.panel.sessions]
    deciding = zip(*plan.deciding, strict=True)  # in each block, a fold for each path
    return tuple(
        OutOfSample(
            fold=block.index,
            first=days[block.test_first],
            last=days[block.test_last],
            trained=tuple((days[first], days[last]) for fold in folds for first, last in fold.train),
        )
        for block, folds in zip(plan.paths.blocks, deciding, strict=True)
    )


def contest_of(plan: RunPlan, archives: Archives, chosen: Mapping[int, int], thresholds: FoldThresholds) -> Contest:
    """Who takes part in a stressed world: the accounts of the run, with its policies opened on the world's market.

    The market may have other prices than the one they were trained on, not other names or features.

    Raises:
        PolicyArchiveError: when a world is played whose symbols or features are not those of the policies.
    """

    def contest(world: StressedWorld) -> list[Contestant]:
        numbers = [block.index for block in world.blocks]
        one_path = len(plan.deciding) == 1
        folds = tuple(fold for fold in plan.folds if fold.index in numbers) if one_path else plan.folds
        # the digest stays that of the market they were trained on, which is how a run knows its archives
        there = replace(plan, panel=world.panel, folds=folds)
        places = {block.index: place for place, block in enumerate(there.paths.blocks)}
        deciding = [places[number] for number in numbers]
        return [
            replace(
                each,
                seeds=tuple(each.seeds[place] for place in deciding),
                by_fold=tuple(each.by_fold[place] for place in deciding),
            )
            for each in contestants(there, archives, chosen, thresholds)
        ]

    return contest


def standard_stress_test(spec: ExperimentSpec) -> StressTest:
    """The standard stress test, with as much history as the rules and the pipeline of an experiment look back on."""
    rules = [rule for rule in (spec.agent, *spec.baselines) if isinstance(rule, ClassicalAgent)]
    return StressTest().looking_back(max([spec.pipeline.lookback, *(rule.lookback for rule in rules)]))


@dataclass(frozen=True, eq=False)
class StressRun:
    """One execution of a run's stress test, told world by world."""

    plan: RunPlan
    returns: pl.DataFrame  # rows of `gold.returns` of the run's source, as its panel was made of
    contest: Contest
    task_id: str
    clock: Callable[[], datetime]  # gives UTC

    def steps(self, stress: StressTest) -> Generator[Progress, None, pl.DataFrame]:
        """Play every world; the last value is the table (`STRESS`).

        Raises:
            ValueError: if the run tests no sessions in which a shock could be played.
        """
        plan, market = self.plan, self.plan.spec.market
        worlds = stressed_worlds(self.returns, out_of_sample(plan), stress, market.symbols, market.max_gap)
        steps = Steps(stress_steps(plan.spec.environment, worlds, self.contest))
        n_worlds, n_played = stress.n_worlds, 0
        yield self._said("start", f"{plan.spec.partition_key}: {n_worlds} stressed worlds", share=0.0)
        for n_told, world in enumerate(steps, start=1):
            n_played += not isinstance(world, NoWorld)
            yield self._said("evaluate.step", _told(world), share=min(1.0, n_told / n_worlds))
        yield self._said("done", f"{n_played} stressed worlds were played", share=1.0)
        return steps.result

    def _said(self, stage: Stage, message: str, **more: Any) -> Progress:
        run_id, at = self.plan.run_id, self.clock()
        return Progress(task_id=self.task_id, run_id=run_id, stage=stage, message=message, timestamp=at, **more)


def _told(world: StressedWorld | NoWorld) -> str:
    if isinstance(world, NoWorld):
        return f"{world.scenario}: not played, {world.note}"
    days = world.panel.sessions
    return f"{world.scenario}: {days[world.first]} to {days[world.last]}"
