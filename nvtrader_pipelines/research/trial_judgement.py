"""Judgement of one trial: training on each validation fold, and one account over its test window."""

import itertools
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, walk
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, sharpe_ratio, varies
from nvtrader_pipelines.evaluation.weights_backtest import STANDARD_EXECUTION
from nvtrader_pipelines.experiments.causal_parts import require_causal_parts
from nvtrader_pipelines.experiments.plan import RunPlan, policy_card
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.experiments.thresholds import fit_thresholds
from nvtrader_pipelines.market.look_ahead import cut_after
from nvtrader_pipelines.market.panel import MarketPanel, normalize_windows
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import write_archive
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.learned import LearnedPolicy, open_policy
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.policies.training import TrainingTask
from nvtrader_pipelines.portfolio.pipeline import Thresholds
from nvtrader_pipelines.research.session_spec import with_scenario_seed

PRUNED_AT = 0.05  # p value of the signed-rank test against the best trial
MIN_SCORES = 4  # folds before the first test

Returns = NDArray[np.float64]


@dataclass(frozen=True)
class TrialJob:
    """Experiment to judge by one seed."""

    number: int  # of the trial in its session; the result has the same
    spec: ExperimentSpec
    seed: int  # of the trainings; 0 if nothing is random
    folds: tuple[Fold, ...]  # in time order
    reference: tuple[float, ...] = ()  # Sharpe ratio of the best trial by fold; empty: no pruning
    scenario_seed: int = 0  # of cuFOLIO's draws, as agent or allocator; accounts that trade have 0
    keeps_policy: bool = False
    n_attempts: int = 1  # a further one only if its process is killed


@dataclass(frozen=True, eq=False)
class TrialResult:
    """Result of a trial, or why it has none."""

    number: int
    seed: int
    returns: Returns | None  # (n,) net, over the test windows of all folds; None if it failed or was pruned
    fold_sharpes: tuple[float, ...]  # annual, by fold, as far as they were judged
    seconds: float
    error: str = ""  # one line; empty if it did not fail
    is_pruned: bool = False
    archives: Mapping[int, bytes] = field(default_factory=dict)  # policy file by fold, if policies are kept


def judge(job: TrialJob, panel: MarketPanel, digest: str) -> TrialResult:
    """Train a trial on each fold and walk its account through the fold's test window, from cash.

    Accounts trade at the common costs and fills and the trial's own cadence; its environment acts in training only.
    The cards of its policies name the market by `digest`.
    """
    began = time.perf_counter()
    spec = with_scenario_seed(job.spec, job.scenario_seed)
    plan, is_worse = RunPlan(spec, panel, digest, job.folds), _pruner(job.reference)
    returns: list[Returns] = []
    sharpes: list[float] = []
    archives: dict[int, bytes] = {}
    error, is_pruned = "", False
    try:
        _require_runnable(job.spec, panel)
        for fold in job.folds:
            policy, archives[fold.index] = _fold_policy(plan, fold, job.seed)
            returns.append(walk_policy(panel, fold, policy, job.spec.environment.rebal_freq))
            sharpes.append(sharpe_ratio(returns[-1], panel.calendar.periods_per_year))
            is_pruned = is_worse(sharpes[-1]) and len(sharpes) < len(job.folds)
            if is_pruned:
                break
        if not varies(np.concatenate(returns)):
            raise UndefinedStatisticError(
                "a trial needs returns that vary, but its account has the same in every session"
            )
    except (ValueError, ArithmeticError) as failure:
        error = " ".join(str(failure).split())
    is_complete = not (error or is_pruned)
    return TrialResult(
        number=job.number,
        seed=job.seed,
        returns=np.concatenate(returns) if is_complete else None,
        fold_sharpes=tuple(sharpes),
        seconds=time.perf_counter() - began,
        error=error,
        is_pruned=is_pruned,
        archives=archives if is_complete and job.keeps_policy else {},
    )


def _require_runnable(spec: ExperimentSpec, panel: MarketPanel) -> None:
    """Raise a ValueError if a run of the experiment would be refused on this market."""
    spec.agent.require_market(panel)
    require_causal_parts(spec, panel)


def _fold_policy(plan: RunPlan, fold: Fold, seed: int) -> tuple[Policy, bytes]:
    """Train the policy of a fold behind the pipeline, and return it with its file."""
    task = plan.task((fold.index, seed))
    fit = _train(plan.panel, task)
    card = policy_card(plan, task, fit)
    archive = write_archive(card, fit.tensors)
    pipeline, thresholds = plan.spec.pipeline, Thresholds()
    if pipeline.timing.needs_fit:
        thresholds = fit_thresholds(plan, {(fold.index, seed): archive}, {fold.index: {seed: 1.0}}, fold)
    policy = open_policy(card, fit.tensors, plan.panel)
    if isinstance(policy, LearnedPolicy):
        policy = policy.without_estimates
    return PipelinedPolicy(policy, pipeline, thresholds, plan.spec.environment.rebal_freq), archive


def _train(panel: MarketPanel, task: TrainingTask) -> Fit:
    """Train in this process; no agent sees sessions after its training."""
    known = cut_after(panel, normalize_windows(task.window)[-1][1])
    return task.agent.train(known, task.environment, task.window, task.seed, TrainingHooks(pipeline=task.pipeline))


def walk_policy(panel: MarketPanel, fold: Fold, policy: Policy, rebal_freq: int) -> Returns:
    """Net returns (n,) of an account at the common costs and fills over the test window of a fold, from cash."""
    environment = EnvSpec(
        rebal_freq=rebal_freq,
        turnover_cost_bps=0.0,
        vol_penalty=0.0,
        costs=STANDARD_EXECUTION.costs,
        fill=STANDARD_EXECUTION.fill,
        rewards=(LogGrowth(),),
    )
    growth = []
    for step in walk(panel, environment, [fold], [PolicyAccount("trial", "ensemble", (None,), (policy,))]):
        if step.outcome is not None:
            growth.append(step.outcome.transition.session_growth[0])
        if step.is_last:  # before the walk makes tables of its record
            break
    return np.concatenate(growth) - 1.0


def _pruner(reference: tuple[float, ...]) -> Callable[[float], bool]:
    """Return a test of whether the folds so far, given one by one, are worse than those of the best trial."""
    if not reference:
        return lambda _: False
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of its interface, which tests exercise
        pruner = optuna.pruners.WilcoxonPruner(p_threshold=PRUNED_AT, n_startup_steps=MIN_SCORES)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    scores = dict(enumerate(reference))
    study.add_trial(optuna.trial.create_trial(value=float(np.mean(reference)), intermediate_values=scores))
    trial, folds = study.ask(), itertools.count()

    def is_worse(score: float) -> bool:
        trial.report(score, next(folds))
        return trial.should_prune()

    return is_worse
