"""Smoke run: one fold and seed, trained, walked and judged in memory; nothing is stored."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.experiments.policy_accounts import FoldThresholds, SeedWeights
from nvtrader_pipelines.experiments.run_store import TrainedPolicy
from nvtrader_pipelines.experiments.runtime import Runtime
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.fit import Start
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.runs.registration import plan_variants
from nvtrader_pipelines.runs.warm_start import read_start
from nvtrader_pipelines.storage.store import Store

MAX_TIMESTEPS = 2048  # of the training; more than off-policy agents collect before they learn


@dataclass(frozen=True)
class SmokeRun:
    """Extent and duration of a smoke run; its figures are no result."""

    experiment: str
    n_folds: int  # of the whole run, of which one was trained
    n_seeds: int
    timesteps: int | None  # of the one training; None if the agent does not learn
    seconds: float


@dataclass
class MemoryRunStore:
    """Run store in memory."""

    read_start: Callable[[FoldSeed], Start | None]
    policies: dict[FoldSeed, bytes] = field(default_factory=dict)
    validated: SeedWeights = field(default_factory=dict)
    fitted: FoldThresholds = field(default_factory=dict)
    record: BacktestRecord | None = None

    def done(self) -> Collection[FoldSeed]:
        """Folds and seeds with a policy."""
        return self.policies

    def checkpoint(self, key: FoldSeed) -> bytes | None:  # noqa: ARG002 - one signature
        """Return None: no training is resumed."""
        return None

    def start(self, key: FoldSeed) -> Start | None:
        """Policy that a training starts from; None for random weights."""
        return self.read_start(key)

    def store_checkpoint(self, key: FoldSeed, content: bytes) -> None:
        """Discard a checkpoint."""

    def store_policy(self, policy: TrainedPolicy) -> None:
        """Store a policy."""
        self.policies[policy.fold, policy.seed] = policy.archive

    def archives(self) -> Mapping[FoldSeed, bytes]:
        """Policies so far."""
        return self.policies

    def seal(self, seed_weights: SeedWeights, thresholds: FoldThresholds) -> None:
        """Store the weights of seeds and the fitted thresholds."""
        self.validated, self.fitted = seed_weights, thresholds

    def seed_weights(self) -> SeedWeights:
        """Weights of seeds by fold."""
        return self.validated

    def thresholds(self) -> FoldThresholds:
        """Fitted thresholds by fold."""
        return self.fitted

    def store_record(self, record: BacktestRecord) -> None:
        """Store the back-test record."""
        self.record = record

    def curves_and_actions(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Equity curves and action logs of the record.

        Raises:
            ValueError: before the walk.
        """
        if self.record is None:
            raise ValueError("a run must be walked before it is judged")
        return self.record.equity_curves, self.record.action_logs

    def store_verdict(self, verdict: pl.DataFrame) -> None:
        """Discard the verdict: a smoke run has no result."""


def smoke_run(store: Store, spec: ExperimentSpec) -> SmokeRun:
    """Train, walk and judge the first fold with one seed and few steps.

    Of an ablation, the first variant is taken.

    Raises:
        StorageError: if its market has no panel, or as `read_start`.
        ValueError: if it cannot be planned, trained or walked.
    """
    whole, began = plan_variants(store, spec)[0], time.perf_counter()
    plan = reduce_plan(whole)
    runtime = Runtime(plan, MemoryRunStore(partial(read_start, store, plan)), "smoke", now)
    for phase in (runtime.train, runtime.walk, runtime.judge):
        for _ in phase():
            pass
    timesteps = plan.spec.agent_of(plan.spec.seeds[0]).total_timesteps or None
    seconds = time.perf_counter() - began
    return SmokeRun(spec.name, len(whole.folds), len(whole.spec.seeds), timesteps, seconds)


def reduce_plan(plan: RunPlan) -> RunPlan:
    """Reduce a plan to its first fold, one seed and few steps; its spec may be invalid."""
    spec = plan.spec
    small = spec.model_copy(update={"agent": spec.agent.shorten(MAX_TIMESTEPS), "seeds": spec.seeds[:1]})
    return replace(plan, spec=small, folds=plan.folds[:1])
