"""Store of one run: policies and checkpoints as files, rows in the tables."""

import contextlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.experiments.policy_accounts import FoldThresholds, SeedWeights
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.run_store import TrainedPolicy
from nvtrader_pipelines.experiments.runtime import training_curves
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.policies.fit import Start
from nvtrader_pipelines.runs.run_tables import complete_run, read_run, replace_run, with_run_keys, write_record
from nvtrader_pipelines.runs.warm_start import read_start
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    DPO_EPOCHS,
    EQUITY_CURVES,
    EVALUATIONS,
    TRAINING_CURVES,
    TRAJECTORIES,
)

PAST_TOLERANCE = 1e-3  # relative, of equity: readjusting prices for a dividend rounds all earlier returns


class Tracker(Protocol):
    """MLflow run that tracks a run."""

    @property
    def mlflow_run_id(self) -> str | None:
        """Its id; None if MLflow failed before the run began."""
        ...

    def live_curves(self, name: str) -> AbstractContextManager[Callable[[Progress], None]]:
        """Return a context with the function that logs the curves of an experiment's trainings, step by step."""
        ...

    def log_training(self, curves: pl.DataFrame, folder: Path) -> None:
        """Log the learning curves of a finished training, and the folder of its policies."""
        ...

    def log_verdict(self, verdict: pl.DataFrame) -> None:
        """Log the figures of a verdict."""
        ...


@dataclass(frozen=True)
class RunWriter:
    """Store of one run; with a `parent`, the run uses the parent's policies and trains none."""

    store: Store
    plan: RunPlan
    clock: Callable[[], datetime]
    parent: SealedRun | None = None
    tracker: Tracker | None = None

    @property
    def library(self) -> PolicyLibrary:
        """Policy library that holds the files."""
        return self.store.policies

    @property
    def _key(self) -> tuple[str, str]:
        return self.plan.spec.partition_key, self.plan.run_id

    def done(self) -> Collection[FoldSeed]:
        """Folds and seeds with a stored policy whose training the ledger records.

        Policies that outlived their warehouse are trained again: it held their sampled episodes.
        """
        return self.library.trained_keys(*self._key) & self.store.ledger.trained_keys(self.plan.run_id)

    def checkpoint(self, key: FoldSeed) -> bytes | None:
        """Last checkpoint of an interrupted training, or None."""
        with contextlib.suppress(FileNotFoundError):
            return self.library.checkpoint_path(*self._key, key).read_bytes()
        return None

    def start(self, key: FoldSeed) -> Start | None:
        """Policy that a training starts from, with the pairs of one that tunes it; None for random weights.

        Raises:
            StorageError: as `read_start`.
        """
        return read_start(self.store, self.plan, key)

    def store_checkpoint(self, key: FoldSeed, content: bytes) -> None:
        """Replace the checkpoint of a training."""
        write_atomically(self.library.checkpoint_path(*self._key, key), content)

    def store_policy(self, policy: TrainedPolicy) -> None:
        """Store the sampled episodes, then the policy: a retry replaces the episodes."""
        keys = {"spec_hash": self.plan.spec.spec_hash, "run_id": self.plan.run_id}
        own = {"phase": ["train"], "fold": [policy.fold], "seed": [policy.seed]}
        rows = with_run_keys(TRAJECTORIES, policy.rollouts, keys)
        self.store.tables.replace(TRAJECTORIES, rows, {**{name: [value] for name, value in keys.items()}, **own})
        if len(policy.epochs):
            key = {"fold": policy.fold, "seed": policy.seed}
            epochs = policy.epochs.with_columns(pl.lit(value, pl.Int32).alias(name) for name, value in key.items())
            rows = with_run_keys(DPO_EPOCHS, epochs, {**keys, "experiment": self.plan.spec.name})
            among = {name: [value] for name, value in {**keys, **key}.items()}
            self.store.tables.replace(DPO_EPOCHS, rows.select(DPO_EPOCHS.schema.names()), among)
        self.library.save(*self._key, policy)

    def archives(self) -> Mapping[FoldSeed, bytes]:
        """Policies of the run so far, sealed or not; those of the parent if it trains none.

        Raises:
            StorageError: if a sealed file is missing or was changed.
        """
        if self.parent is None and not self.library.is_sealed(*self._key):
            return self.library.read_unsealed(self.plan)
        return self.library.read_run(self.parent or self.run)

    def seal(self, seed_weights: SeedWeights, thresholds: FoldThresholds) -> None:
        """Seal the policies, then store and log their training curves."""
        run = self.library.seal(self.plan, seed_weights, thresholds)
        curves = training_curves(self.library.read_run(run))
        replace_run(self.store, TRAINING_CURVES, curves, run)
        if self.tracker:
            self.tracker.log_training(curves, self.library.folder(*self._key))

    def seed_weights(self) -> SeedWeights:
        """Weights of seeds by fold."""
        return self.run.seed_weights

    def thresholds(self) -> FoldThresholds:
        """Fitted timing thresholds by fold."""
        return self.run.thresholds

    def store_record(self, record: BacktestRecord) -> None:
        """Write the trajectory tables.

        Raises:
            StorageError: if a forward run would change its recorded past.
        """
        if self.plan.kind == "forward":
            require_unchanged_past(read_run(self.store, EQUITY_CURVES, self.run), record.equity_curves)
        for _ in write_record(self.store, self.run, record):
            pass

    def curves_and_actions(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Equity curves and action logs of the stored record."""
        return read_run(self.store, EQUITY_CURVES, self.run), read_run(self.store, ACTION_LOGS, self.run)

    def store_verdict(self, verdict: pl.DataFrame) -> None:
        """Write and log the verdict, then write the row that marks the run as complete."""
        replace_run(self.store, EVALUATIONS, verdict, self.run)
        if self.tracker:
            self.tracker.log_verdict(verdict)
        complete_run(self.store, self.run, self.clock(), self.tracker.mlflow_run_id if self.tracker else None)

    @property
    def run(self) -> SealedRun:
        """Run with its sealed policies.

        Raises:
            StorageError: if the policies are not sealed.
        """
        if self.parent is None:
            return self.library.read_sealed(*self._key)
        of = self.parent  # that trained the policies
        return SealedRun.of(self.plan, of.policies, of.seed_weights, of.thresholds, of.processor)


def require_unchanged_past(known: pl.DataFrame, now: pl.DataFrame) -> None:
    """Raise if a forward run would change recorded equity; rounding is tolerated.

    Raises:
        StorageError: if a recorded session is missing or has a different equity.
    """
    keys = ["policy", "session"]
    joined = known.select(*keys, "equity").join(now.select(*keys, pl.col("equity").alias("now")), on=keys, how="left")
    off = (pl.col("now") / pl.col("equity") - 1.0).abs()
    changed = joined.filter(off.is_null() | (off > PAST_TOLERANCE)).sort(keys)
    if len(changed):
        row = changed.row(0, named=True)
        raise StorageError(
            f"the past of a forward run must not change, but {row['policy']} had equity {row['equity']:.6f} on "
            f"{row['session']} and has {row['now'] or 0.0:.6f} on the current bars; restore the former bars, or "
            "train the experiment on the current ones and start a new forward run"
        )
