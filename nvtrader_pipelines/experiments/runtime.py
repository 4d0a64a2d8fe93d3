"""Runs an experiment: trains every fold and seed, walks them and the baselines through the tests, and judges them."""

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord, WalkStep, walk
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.evaluation.verdict_tables import EVALUATION
from nvtrader_pipelines.evaluation.walk_forward import MIN_SESSIONS, evaluate
from nvtrader_pipelines.experiments.accounts import choose, contestants
from nvtrader_pipelines.experiments.plan import PHASES, FoldSeed, RunPlan
from nvtrader_pipelines.experiments.progress import Progress, Stage
from nvtrader_pipelines.experiments.stages import Teller, equity_stages, forward_stages
from nvtrader_pipelines.experiments.store import RunStore, TrainedPolicy
from nvtrader_pipelines.experiments.thresholds import fit_thresholds
from nvtrader_pipelines.policies.agents import Learner
from nvtrader_pipelines.policies.archive import read_card, write_archive
from nvtrader_pipelines.policies.rollout_tables import TRAINING_CURVE, TRAJECTORY
from nvtrader_pipelines.policies.training import Checkpointed, Finished, Stepped, TrainingEvent, TrainingTask, train_all
from nvtrader_pipelines.portfolio.pipeline import Thresholds

TRAINING_SHARE = 0.9  # of the time of a run that trains and judges
Span = tuple[float, float]  # shares of the whole run that are done before and after a part
WHOLE: Span = (0.0, 1.0)
Steps = Generator[Progress, None, None]


@dataclass(frozen=True, eq=False)
class Runtime:
    """One execution of a run, told step by step; closing a generator ends what it started."""

    plan: RunPlan
    store: RunStore
    task_id: str
    clock: Callable[[], datetime]  # gives UTC

    def train(self) -> Steps:
        """Train the folds and seeds that are not done, from their checkpoints where there are some."""
        yield from self._begun("training")
        yield from self._trained(WHOLE)
        yield self._said("done", f"{len(self.plan.keys)} policies are trained", share=1.0)

    def judge(self) -> Generator[Progress, None, BacktestRecord]:
        """Walk the policies of a sealed run through the test windows; the last value is the record that was kept."""
        yield from self._begun("test")
        record = yield from self._walked(WHOLE, equity_stages)
        yield self._said("done", f"walked {_dates(self.plan)}", share=1.0)
        return record

    def evaluate(self) -> Steps:
        """Walk the policies of a sealed run through the test windows and give the verdict."""
        yield from self._begun("evaluation")
        record = yield from self._walked(WHOLE, equity_stages)
        yield self._verdict(record)

    def walk_forward(self) -> Steps:
        """Train, walk and give the verdict."""
        yield from self._begun("walk-forward")
        yield from self._trained((0.0, TRAINING_SHARE))
        record = yield from self._walked((TRAINING_SHARE, 1.0), equity_stages)
        yield self._verdict(record)

    def replay(self) -> Steps:
        """Walk the parent's policies through the plan's window and give the verdict."""
        yield from self._begun(f"replay of {self.plan.parent_run_id}")
        record = yield from self._walked(WHOLE, equity_stages)
        yield self._verdict(record)

    def forward(self) -> Steps:
        """Carry the parent's last policies on over the sessions since: each bar, signal, order, fill and equity."""
        yield from self._begun(f"forward run of {self.plan.parent_run_id}")
        record = yield from self._walked(WHOLE, forward_stages)
        yield self._verdict(record)

    def _begun(self, what: str) -> Steps:
        spec, panel = self.plan.spec, self.plan.panel
        yield self._said("start", f"{spec.partition_key}: {what} over {_dates(self.plan)}", share=0.0)
        market = f"{len(panel.sessions)} sessions of {len(panel.symbols)} symbols from {panel.source}"
        yield self._said("data.loaded", f"{market}, {panel.sessions[0]} to {panel.sessions[-1]}", share=0.0)
        environment = spec.environment
        seen, action = environment.observation.kind, environment.action.kind
        yield self._said("env.built", f"{seen} observation, {action} action, {environment.fill} fills", share=0.0)
        n_policies = f"{len(self.plan.folds)} folds by {len(spec.seeds)} seeds"
        yield self._said("agent.built", f"{spec.agent.kind}, {n_policies}", share=0.0)

    def _trained(self, span: Span) -> Steps:
        """Train what is not done, choose where the design chooses, fit the timing, and seal.

        What goes by the market alone is fitted first: where it cannot be, nothing is trained in vain.
        """
        plan, done = self.plan, set(self.store.done())
        pipeline, thresholds = plan.spec.pipeline, dict[int, Thresholds]()
        pipeline.start(plan.panel)  # refuses a market that lacks what a stage needs
        if pipeline.timing.needs_fit and not pipeline.timing.needs_path:
            yield from self._fit(thresholds, {}, span[0])
        tasks = [plan.task(key, self.store.checkpoint(key)) for key in plan.keys if key not in done]
        resumed = {(task.fold, task.seed) for task in tasks if task.resume_from is not None}
        meter = _Meter(plan.keys, done, resumed, span, self.clock)
        with closing(train_all(plan.panel, tasks)) as events:  # its workers end with this generator
            for event in events:
                yield self._kept(event, meter)
        chosen: dict[int, int] = {}
        for fold in plan.folds_to_choose:
            choice = choose(plan, self.store.archives(), fold)
            chosen[fold.index] = choice.seed
            metrics = {f"sharpe/seed-{seed}": sharpe for seed, sharpe in choice.sharpe.items()}
            message = f"fold {fold.index}: seed {choice.seed} did best on the sessions held out of its training"
            yield self._said(
                "evaluate.step", message, fold=fold.index, seed=choice.seed, share=span[1], metrics=metrics
            )
        if pipeline.timing.needs_path:
            yield from self._fit(thresholds, chosen, span[1])
        self.store.seal(chosen, thresholds)

    def _fit(self, thresholds: dict[int, Thresholds], chosen: Mapping[int, int], share: float) -> Steps:
        """Fit the timing on the training of each fold, into `thresholds`."""
        for fold in self.plan.folds:
            fitted = thresholds[fold.index] = fit_thresholds(self.plan, self.store.archives(), chosen, fold)
            yield self._fitted(fold, fitted, share)

    def _fitted(self, fold: Fold, thresholds: Thresholds, share: float) -> Progress:
        metrics = {name: value for name, value in thresholds if value is not None}
        figures = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in metrics.items())
        message = f"fold {fold.index}: the {self.plan.spec.pipeline.timing.kind} timing was fitted to its training"
        said = f"{message}: {figures}" if figures else message
        return self._said("evaluate.step", said, fold=fold.index, share=share, metrics=metrics)

    def _kept(self, event: TrainingEvent, meter: "_Meter") -> Progress:
        """Keep what a training gave, and say so."""
        task = event.task
        total = task.agent.total_timesteps if isinstance(task.agent, Learner) else 0
        key = (task.fold, task.seed)
        who = {"fold": task.fold, "seed": task.seed, "total_timesteps": total}
        name = f"fold {task.fold} seed {task.seed}"
        match event:
            case Stepped(timesteps=timesteps, mean_reward=reward):
                share = meter.at(key, timesteps / total)
                metrics = {"mean_reward": reward, "steps_per_second": meter.trainings_per_second * total}
                message = f"{name}: {timesteps} of {total} timesteps{meter.pace(total)}"
                return self._said("train.step", message, **who, timesteps=timesteps, share=share, metrics=metrics)
            case Checkpointed(content=content):
                self.store.keep_checkpoint(key, content)
                return self._said("train.checkpoint", f"{name}: can be resumed", **who, share=meter.share)
            case Finished(fit=fit):
                archive = write_archive(self.plan.card(task, fit), fit.tensors)
                policy = TrainedPolicy(*key, archive, rollout_rows(self.plan, task, fit.rollouts))
                self.store.keep_policy(policy)
                share = meter.finished(key)
                message = f"{name}: trained{meter.pace(total)}"
                return self._said("train.checkpoint", message, **who, timesteps=total, share=share)

    def _walked(self, span: Span, tell: Teller) -> Generator[Progress, None, BacktestRecord]:
        """Walk every account and keep the record, which is the last value."""
        plan = self.plan
        who = contestants(plan, self.store.archives(), self.store.chosen(), self.store.thresholds())
        own = next(i for i, contestant in enumerate(who) if contestant.kind == "ensemble")
        steps = walk(plan.panel, plan.spec.environment, plan.paths.blocks, who, PHASES[plan.kind])
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                self.store.keep_record(end.value)
                return end.value
            for stage, message, metrics in tell(plan, step, own):
                share = _share(plan, step, span)
                yield self._said(stage, message, fold=step.fold, share=share, metrics=metrics)

    def _verdict(self, record: BacktestRecord) -> Progress:
        verdict = verdict_of(self.plan, record)
        self.store.keep_verdict(verdict)
        metrics = headline(verdict)
        message = f"net Sharpe {metrics['all/sharpe']:.2f}" if "all/sharpe" in metrics else "too short for a verdict"
        return self._said("done", f"{_dates(self.plan)}: {message}", share=1.0, metrics=metrics)

    def _said(self, stage: Stage, message: str, **more: Any) -> Progress:
        run_id, at = self.plan.run_id, self.clock()
        return Progress(task_id=self.task_id, run_id=run_id, stage=stage, message=message, timestamp=at, **more)


class _Meter:
    """How far the trainings of a run are, and how fast they go since this execution began."""

    def __init__(
        self,
        keys: Collection[FoldSeed],
        trained: Collection[FoldSeed],
        resumed: Collection[FoldSeed],
        span: Span,
        clock: Callable[[], datetime],
    ) -> None:
        self._trained, self._span = set(trained), span
        self._done = {key: float(key in trained) for key in keys}
        # where a resumed training went on is known once it tells of itself
        self._before = {key: share for key, share in self._done.items() if key not in resumed}
        self._clock, self._began_at = clock, clock()

    def at(self, key: FoldSeed, share: float) -> float:
        """Note a training's share, and give the run's."""
        self._done[key] = min(1.0, share)
        self._before.setdefault(key, self._done[key])
        return self.share

    def finished(self, key: FoldSeed) -> float:
        """Note that a training is done, and give the run's share."""
        self._trained.add(key)
        return self.at(key, 1.0)

    @property
    def share(self) -> float:
        """Of the whole run."""
        first, last = self._span
        return first + (last - first) * sum(self._done.values()) / len(self._done)

    @property
    def trainings_per_second(self) -> float:
        """Of all processes together; 0 before there is anything to tell it by."""
        elapsed = (self._clock() - self._began_at).total_seconds()
        gained = sum(self._done[key] - before for key, before in self._before.items())
        return gained / elapsed if elapsed > 0.0 else 0.0

    def pace(self, total_timesteps: int) -> str:
        """How many are trained, the steps a second of all of them, and the time that is left at this pace."""
        told = f" ({len(self._trained)} of {len(self._done)} trained"
        speed = self.trainings_per_second
        if speed > 0.0:
            left = timedelta(seconds=round((len(self._done) - sum(self._done.values())) / speed))
            told += f"; {speed * total_timesteps:,.0f} steps/s, {left} left" if total_timesteps else f"; {left} left"
        return f"{told})"


def _share(plan: RunPlan, step: WalkStep, span: Span) -> float:
    start, end = plan.paths.blocks[0].test_first - 1, plan.paths.blocks[-1].test_last
    walked = (step.t - start) / max(1, end - start)
    return span[0] + (span[1] - span[0]) * walked


def _dates(plan: RunPlan) -> str:
    return " to ".join(map(str, plan.window))


def rollout_rows(plan: RunPlan, task: TrainingTask, rollouts: pl.DataFrame) -> pl.DataFrame:
    """Sampled training episodes as rows of the trajectories."""
    named = {"policy": f"{plan.spec.name}/seed-{task.seed}", "kind": "policy", "phase": "train"}
    who = {**named, "fold": task.fold, "seed": task.seed}
    return rollouts.with_columns(
        pl.lit(value).cast(TRAJECTORY[name]).alias(name) for name, value in who.items()
    ).select(list(TRAJECTORY))


def verdict_of(plan: RunPlan, record: BacktestRecord) -> pl.DataFrame:
    """Every account over each period; over all of it only where the policies are a parent's."""
    if record.equity_curves["session"].n_unique() < MIN_SESSIONS:
        return pl.DataFrame(schema=EVALUATION)
    verdict = evaluate(record.equity_curves, record.action_logs, plan.spec.report_from)
    return verdict if plan.kind == "walk_forward" else verdict.filter(pl.col("period") == "all")


def headline(verdict: pl.DataFrame) -> dict[str, float]:
    """The experiment's own Sharpe ratio and worst drawdown over each period."""
    own = verdict.filter(pl.col("kind") == "ensemble", pl.col("period") != "fold")
    return {
        f"{row['period']}/{name}": row[name] for row in own.iter_rows(named=True) for name in ("sharpe", "max_drawdown")
    }


def training_curves(archives: Mapping[FoldSeed, bytes]) -> pl.DataFrame:
    """The learning curves kept in the policies' cards: fold, seed, timesteps, mean reward of a step."""
    rows = [
        (fold, seed, timesteps, reward)
        for (fold, seed), content in sorted(archives.items())
        for timesteps, reward in read_card(content).learning_curve
    ]
    return pl.DataFrame(rows, schema=TRAINING_CURVE, orient="row")
