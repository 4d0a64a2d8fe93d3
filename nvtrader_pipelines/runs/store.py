"""Where a run of one home keeps what it makes: policies and checkpoints as files, rows in the tables."""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.experiments.policy_accounts import FoldThresholds
from nvtrader_pipelines.experiments.run_store import TrainedPolicy
from nvtrader_pipelines.experiments.runtime import training_curves
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.runs.tables import complete, keyed, read_run, replace_run, write_record
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, EVALUATIONS, TRAINING_CURVES, TRAJECTORIES

PAST_TOLERANCE = 1e-3  # of equity; adjusting prices for a dividend anew rounds every return before it


@dataclass(frozen=True)
class StoredRun:
    """The store of one run; with a `parent`, the run uses that one's policies and trains none."""

    store: Store
    plan: RunPlan
    clock: Callable[[], datetime]
    parent: SealedRun | None = None
    mlflow_run_id: str | None = None  # where the run is tracked

    @property
    def library(self) -> PolicyLibrary:
        """Where the policies lie."""
        return self.store.policies

    @property
    def _place(self) -> tuple[str, str]:
        return self.plan.spec.partition_key, self.plan.run_id

    def done(self) -> Collection[FoldSeed]:
        """Folds and seeds whose policies are kept."""
        return self.library.trained_keys(*self._place)

    def checkpoint(self, key: FoldSeed) -> bytes | None:
        """The last checkpoint of a training that was interrupted."""
        with contextlib.suppress(FileNotFoundError):
            return self.library.checkpoint_path(*self._place, key).read_bytes()
        return None

    def store_checkpoint(self, key: FoldSeed, content: bytes) -> None:
        """Keep a state to resume from, in place of the one before."""
        write_atomically(self.library.checkpoint_path(*self._place, key), content)

    def store_policy(self, policy: TrainedPolicy) -> None:
        """The sampled episodes first: a kill after them leaves rows that the next attempt replaces."""
        keys = {"spec_hash": self.plan.spec.spec_hash, "run_id": self.plan.run_id}
        own = {"phase": ["train"], "fold": [policy.fold], "seed": [policy.seed]}
        rows = keyed(TRAJECTORIES, policy.rollouts, keys)
        self.store.tables.replace(TRAJECTORIES, rows, {**{name: [value] for name, value in keys.items()}, **own})
        self.library.save(*self._place, policy)

    def archives(self) -> Mapping[FoldSeed, bytes]:
        """Every policy the run has so far, or those it was sealed with; those of its parent where it trains none.

        Raises:
            StorageError: if a sealed file is missing or not the one that was sealed.
        """
        if self.parent is None and not self.library.is_sealed(*self._place):
            return self.library.read_unsealed(self.plan)
        return self.library.read_run(self.parent or self.run)

    def seal(self, chosen: Mapping[int, int], thresholds: FoldThresholds) -> None:
        """Mark the policies as complete, and keep how their trainings went."""
        run = self.library.seal(self.plan, chosen, thresholds)
        replace_run(self.store, TRAINING_CURVES, training_curves(self.library.read_run(run)), run)

    def chosen(self) -> Mapping[int, int]:
        """Fold to the seed chosen for it."""
        return self.run.chosen

    def thresholds(self) -> FoldThresholds:
        """Fold to what the timing was fitted to."""
        return self.run.thresholds

    def store_record(self, record: BacktestRecord) -> None:
        """Write the trajectory tables.

        Raises:
            StorageError: if a forward run already has another past.
        """
        if self.plan.kind == "forward":
            require_same_past(read_run(self.store, EQUITY_CURVES, self.run), record.equity_curves)
        for _ in write_record(self.store, self.run, record):
            pass

    def curves_and_actions(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Equity curves and action logs of the stored record."""
        return read_run(self.store, EQUITY_CURVES, self.run), read_run(self.store, ACTION_LOGS, self.run)

    def store_verdict(self, verdict: pl.DataFrame) -> None:
        """Write the verdict, then the row that marks the run as complete."""
        replace_run(self.store, EVALUATIONS, verdict, self.run)
        complete(self.store, self.run, self.clock(), self.mlflow_run_id)

    @property
    def run(self) -> SealedRun:
        """The run with its sealed policies.

        Raises:
            StorageError: if they are not sealed.
        """
        if self.parent is None:
            return self.library.read_sealed(*self._place)
        return SealedRun.of(self.plan, self.parent.policies, self.parent.chosen, self.parent.thresholds)


def require_same_past(known: pl.DataFrame, now: pl.DataFrame) -> None:
    """Refuse to rewrite what an account did; prices adjusted anew change it by a rounding.

    Raises:
        StorageError: if a session that was recorded is gone, or its equity is another.
    """
    keys = ["policy", "session"]
    joined = known.select(*keys, "equity").join(now.select(*keys, pl.col("equity").alias("now")), on=keys, how="left")
    off = (pl.col("now") / pl.col("equity") - 1.0).abs()
    changed = joined.filter(off.is_null() | (off > PAST_TOLERANCE)).sort(keys)
    if len(changed):
        row = changed.row(0, named=True)
        raise StorageError(
            f"the past of a forward run must stay as it was, but {row['policy']} had equity {row['equity']:.6f} on "
            f"{row['session']} and has {row['now'] or 0.0:.6f} on the bars as they are now; restore those bars, or "
            "train the experiment on them and begin a forward run of its own"
        )
