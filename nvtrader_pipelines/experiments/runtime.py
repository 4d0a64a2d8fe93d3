"""Runtime of an experiment: train every fold and seed, walk all accounts through the tests, evaluate."""

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord, WalkStep, chain_records, walk
from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED
from nvtrader_pipelines.evaluation.step_generators import Steps
from nvtrader_pipelines.evaluation.verdict_tables import EVALUATION
from nvtrader_pipelines.evaluation.walk_forward_evaluation import MIN_SESSIONS, evaluate
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan, policy_card
from nvtrader_pipelines.experiments.plan_kinds import PHASES
from nvtrader_pipelines.experiments.policy_accounts import SeedWeights, build_accounts, weigh_seeds
from nvtrader_pipelines.experiments.progress import Progress, Stage
from nvtrader_pipelines.experiments.run_store import RunStore, TrainedPolicy
from nvtrader_pipelines.experiments.thresholds import fit_thresholds
from nvtrader_pipelines.experiments.walk_progress import equity_stages, forward_stages
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import read_archive, read_card, write_archive
from nvtrader_pipelines.policies.rollout_tables import TRAINING_CURVE, TRAJECTORY
from nvtrader_pipelines.policies.training import Checkpointed, Finished, Stepped, TrainingTask, train_all
from nvtrader_pipelines.portfolio.pipeline import Thresholds

RunSteps = Generator[Progress, None, None]


@dataclass(frozen=True, eq=False)
class Runtime:
    """One execution of a run as generators of progress; closing a generator ends its processes."""

    plan: RunPlan
    store: RunStore
    task_id: str
    clock: Callable[[], datetime]  # current time, UTC

    def train(self) -> RunSteps:
        """Train the folds and seeds that are not done, resuming from checkpoints."""
        days, folds = self.plan.panel.sessions, self.plan.folds
        first, last = days[min(fold.train_first for fold in folds)], days[max(fold.train_last for fold in folds)]
        yield from self._start(f"training on {first} to {last}, for the tests on {_dates(self.plan)}")
        yield from self._train()
        yield self._progress("done", f"{len(self.plan.keys)} policies are trained", share=1.0)

    def adopt(self, archives: Mapping[FoldSeed, bytes]) -> RunSteps:
        """Store policies that this experiment's settings have trained elsewhere, with cards of this run.

        On the market of their training the files are the same, byte for byte.

        Raises:
            PolicyArchiveError: if a file is damaged.
        """
        done = set(self.store.done())
        training = TrainingProgress(self.plan.keys, done, (), self.clock)
        for key in archives.keys() - done:
            card, tensors = read_archive(archives[key])
            fit = Fit(tensors, card.scaler, list(card.learning_curve))
            yield self._store_event(Finished(self.plan.task(key), fit), training)

    def walk(self) -> Generator[Progress, None, BacktestRecord]:
        """Walk the policies of a sealed run and the baselines through the plan's window; return the stored record.

        A forward run reports each bar, signal, order, fill and equity, every other run its equity since its account
        opened; see `RunPlan.stretches`.
        """
        plan, format_step = self.plan, forward_stages if self.plan.kind == "forward" else equity_stages
        parent = f" of {plan.parent_run_id}" if plan.parent_run_id else ""
        kind = "test" if plan.kind == "walk_forward" else f"{plan.kind.replace('_', ' ')}{parent}"
        yield from self._start(f"{kind} over {_dates(plan)}")
        archives, seed_weights, thresholds = self.store.archives(), self.store.seed_weights(), self.store.thresholds()
        records: list[BacktestRecord] = []
        for part in plan.stretches:
            accounts = build_accounts(part, archives, seed_weights, thresholds)
            own = next(i for i, account in enumerate(accounts) if account.kind == "ensemble")
            steps = Steps(walk(part.panel, part.spec.environment, part.paths.blocks, accounts, PHASES[part.kind]))
            for step in steps:
                for stage, message, metrics in format_step(part, step, own):
                    share = _share(plan, step)
                    yield self._progress(stage, message, fold=step.fold, share=share, metrics=metrics)
            records.append(steps.result)
        record = chain_records(records)
        self.store.store_record(record)
        return record

    def judge(self) -> Generator[Progress, None, pl.DataFrame]:
        """Evaluate the stored record, store the verdict and return it; the run is then complete."""
        verdict = evaluate_run(self.plan, *self.store.curves_and_actions())
        self.store.store_verdict(verdict)
        metrics = headline(verdict)
        is_long = verdict.filter(kind="ensemble", period="all")["n_sessions"].sum() >= MIN_ANNUALIZED
        message = f"net Sharpe {metrics['all/sharpe']:.2f}" if is_long else "too short for a Sharpe ratio"
        yield self._progress("done", f"{_dates(self.plan)}: {message}", share=1.0, metrics=metrics)
        return verdict

    def _start(self, what: str) -> RunSteps:
        spec, panel = self.plan.spec, self.plan.panel
        yield self._progress("start", f"{spec.partition_key}: {what}", share=0.0)
        market = f"{len(panel.sessions)} sessions of {len(panel.symbols)} symbols from {panel.source}"
        yield self._progress("data.loaded", f"{market}, {panel.sessions[0]} to {panel.sessions[-1]}", share=0.0)
        environment = spec.environment
        seen, action = environment.observation.kind, environment.action.kind
        yield self._progress("env.built", f"{seen} observation, {action} action, {environment.fill} fills", share=0.0)
        n_policies = f"{len(self.plan.folds)} folds by {len(spec.seeds)} seeds"
        yield self._progress("agent.built", f"{spec.agent.kind}, {n_policies}", share=0.0)

    def _train(self) -> RunSteps:
        """Train the missing policies, weigh seeds where the design does, fit the timing and seal.

        Timings that depend on the market only are fitted first, so that a failure costs no training.
        """
        plan, done = self.plan, set(self.store.done())
        pipeline, thresholds = plan.spec.pipeline, dict[int, Thresholds]()
        pipeline.start(plan.panel)  # fails if the market lacks data that a stage needs
        if pipeline.timing.needs_fit and not pipeline.timing.needs_path:
            yield from self._fit(thresholds, {}, 0.0)
        tasks = [
            plan.task(key, self.store.checkpoint(key), self.store.start(key)) for key in plan.keys if key not in done
        ]
        resumed = {(task.fold, task.seed) for task in tasks if task.resume_from is not None}
        training = TrainingProgress(plan.keys, done, resumed, self.clock)
        with closing(train_all(plan.panel, tasks)) as events:  # workers end with this generator
            for event in events:
                yield self._store_event(event, training)
        seed_weights: dict[int, Mapping[int, float]] = {}
        for fold in plan.validated_folds:
            choice = weigh_seeds(plan, self.store.archives(), fold)
            seed_weights[fold.index] = choice.weights
            message = f"fold {fold.index}: {choice.describe(plan.spec)}"
            yield self._progress(
                "evaluate.step", message, fold=fold.index, seed=choice.seed, share=1.0, metrics=choice.metrics
            )
        if pipeline.timing.needs_path:
            yield from self._fit(thresholds, seed_weights, 1.0)
        self.store.seal(seed_weights, thresholds)

    def _fit(self, thresholds: dict[int, Thresholds], seed_weights: SeedWeights, share: float) -> RunSteps:
        """Fit the timing on the training of each fold, into `thresholds`."""
        for fold in self.plan.folds:
            fitted = thresholds[fold.index] = fit_thresholds(self.plan, self.store.archives(), seed_weights, fold)
            metrics = {name: value for name, value in fitted if value is not None}
            message = f"fold {fold.index}: fitted the {self.plan.spec.pipeline.timing.kind} timing to its training"
            if metrics:
                figures = (f"{name.replace('_', ' ')} {value:.4g}" for name, value in metrics.items())
                message += f": {', '.join(figures)}"
            yield self._progress("evaluate.step", message, fold=fold.index, share=share, metrics=metrics)

    def _store_event(
        self,
        event: Stepped[TrainingTask] | Checkpointed[TrainingTask] | Finished[TrainingTask],
        training: "TrainingProgress",
    ) -> Progress:
        """Store the result of a training event and report progress."""
        task = event.task
        total = task.total_timesteps
        key = (task.fold, task.seed)
        key_fields = {"fold": task.fold, "seed": task.seed, "total_timesteps": total}
        name = f"fold {task.fold} seed {task.seed}"
        match event:
            case Stepped(timesteps=timesteps, mean_reward=reward, scalars=scalars):
                share = training.update(key, timesteps / total)
                pace = {"steps_per_second": training.trainings_per_second * total}
                metrics = {"mean_reward": reward, **pace, **scalars}
                message = f"{name}: {timesteps} of {total} timesteps{training.pace(total)}"
                return self._progress(
                    "train.step", message, **key_fields, timesteps=timesteps, share=share, metrics=metrics
                )
            case Checkpointed(content=content):
                self.store.store_checkpoint(key, content)
                return self._progress("train.checkpoint", f"{name}: can be resumed", **key_fields, share=training.share)
            case Finished(fit=fit):
                archive = write_archive(policy_card(self.plan, task, fit), fit.tensors)
                policy = TrainedPolicy(*key, archive, rollout_rows(self.plan, task, fit.rollouts), fit.epochs)
                self.store.store_policy(policy)
                share = training.finish(key)
                message = f"{name}: trained{training.pace(total)}"
                return self._progress("train.checkpoint", message, **key_fields, timesteps=total, share=share)

    def _progress(self, stage: Stage, message: str, **more: Any) -> Progress:
        run_id, at = self.plan.run_id, self.clock()
        return Progress(task_id=self.task_id, run_id=run_id, stage=stage, message=message, timestamp=at, **more)


class TrainingProgress:
    """Progress and pace of the trainings of a run since this execution began."""

    def __init__(
        self,
        keys: Collection[FoldSeed],
        trained: Collection[FoldSeed],
        resumed: Collection[FoldSeed],
        clock: Callable[[], datetime],
    ) -> None:
        self._trained = set(trained)
        self._done = {key: float(key in trained) for key in keys}
        # shares of resumed trainings are known at their first event
        self._before = {key: share for key, share in self._done.items() if key not in resumed}
        self._clock, self._began_at = clock, clock()

    def update(self, key: FoldSeed, share: float) -> float:
        """Set the share of a training and return that of the run."""
        self._done[key] = min(1.0, share)
        self._before.setdefault(key, self._done[key])
        return self.share

    def finish(self, key: FoldSeed) -> float:
        """Mark a training as done and return the share of the run."""
        self._trained.add(key)
        return self.update(key, 1.0)

    @property
    def share(self) -> float:
        """Share of all training that is done."""
        return sum(self._done.values()) / len(self._done)

    @property
    def trainings_per_second(self) -> float:
        """Trainings per second of all processes; 0 before the first progress."""
        elapsed = (self._clock() - self._began_at).total_seconds()
        gained = sum(self._done[key] - before for key, before in self._before.items())
        return gained / elapsed if elapsed > 0.0 else 0.0

    def pace(self, total_timesteps: int) -> str:
        """Format trained policies, steps per second and remaining time."""
        text = f" ({len(self._trained)} of {len(self._done)} trained"
        speed = self.trainings_per_second
        if speed > 0.0:
            left = timedelta(seconds=round((len(self._done) - sum(self._done.values())) / speed))
            text += f"; {speed * total_timesteps:,.0f} steps/s, {left} left" if total_timesteps else f"; {left} left"
        return f"{text})"


def _share(plan: RunPlan, step: WalkStep) -> float:
    start, end = plan.paths.blocks[0].test_first - 1, plan.paths.blocks[-1].test_last
    return (step.t - start) / max(1, end - start)


def _dates(plan: RunPlan) -> str:
    return " to ".join(map(str, plan.window))


def rollout_rows(plan: RunPlan, task: TrainingTask, rollouts: pl.DataFrame) -> pl.DataFrame:
    """Convert sampled training episodes to rows of trajectories."""
    named = {"policy": f"{plan.spec.name}/seed-{task.seed}", "kind": "policy", "phase": "train"}
    keys = {**named, "fold": task.fold, "seed": task.seed}
    return rollouts.with_columns(
        pl.lit(value).cast(TRAJECTORY[name]).alias(name) for name, value in keys.items()
    ).select(list(TRAJECTORY))


def evaluate_run(plan: RunPlan, equity_curves: pl.DataFrame, action_logs: pl.DataFrame) -> pl.DataFrame:
    """Evaluate every account per period; of replays and forward runs, only over all sessions."""
    if equity_curves["session"].n_unique() < MIN_SESSIONS:
        return pl.DataFrame(schema=EVALUATION)
    verdict = evaluate(equity_curves, action_logs, plan.spec.report_from, plan.panel.calendar.periods_per_year)
    return verdict if plan.kind == "walk_forward" else verdict.filter(pl.col("period") == "all")


def headline(verdict: pl.DataFrame) -> dict[str, float]:
    """Sharpe ratio and maximum drawdown of the ensemble, by period."""
    own = verdict.filter(pl.col("kind") == "ensemble", pl.col("period") != "fold")
    return {
        f"{row['period']}/{name}": row[name] for row in own.iter_rows(named=True) for name in ("sharpe", "max_drawdown")
    }


def training_curves(archives: Mapping[FoldSeed, bytes]) -> pl.DataFrame:
    """Learning curves from the policies' cards: fold, seed, timesteps, mean reward per step."""
    rows = [
        (fold, seed, timesteps, reward)
        for (fold, seed), content in sorted(archives.items())
        for timesteps, reward in read_card(content).learning_curve
    ]
    return pl.DataFrame(rows, schema=TRAINING_CURVE, orient="row")
