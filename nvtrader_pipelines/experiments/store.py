"""Where a run keeps what it makes: the side of storage that the runtime sees."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.accounts import FoldThresholds
from nvtrader_pipelines.experiments.plan import FoldSeed


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """One policy file, whose card holds how the training went, and the sampled episodes of that training."""

    fold: int
    seed: int
    archive: bytes
    rollouts: pl.DataFrame  # rows of a trajectory, phase train


class RunStore(Protocol):
    """What was kept is there after a kill, and half of it never is."""

    def done(self) -> Collection[FoldSeed]:
        """Folds and seeds whose policies are kept."""
        ...

    def checkpoint(self, key: FoldSeed) -> bytes | None:
        """The last checkpoint of a training that was interrupted."""
        ...

    def keep_checkpoint(self, key: FoldSeed, content: bytes) -> None:
        """Keep a state to resume from, in place of the one before."""
        ...

    def keep_policy(self, policy: TrainedPolicy) -> None:
        """Keep a policy; its checkpoint is needed no more."""
        ...

    def archives(self) -> Mapping[FoldSeed, bytes]:
        """Every policy the run has so far; those of its parent where it trains none."""
        ...

    def seal(self, chosen: Mapping[int, int], thresholds: FoldThresholds) -> None:
        """Mark the policies as complete, with the seed chosen for each fold and what its timing was fitted to."""
        ...

    def chosen(self) -> Mapping[int, int]:
        """Fold to the seed chosen for it; empty where the seeds are averaged."""
        ...

    def thresholds(self) -> FoldThresholds:
        """Fold to what the timing was fitted to; empty where it needs no fit."""
        ...

    def keep_record(self, record: BacktestRecord) -> None:
        """Keep what every account saw, did and earned."""
        ...

    def curves_and_actions(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Equity curves and action logs of the stored record."""
        ...

    def keep_verdict(self, verdict: pl.DataFrame) -> None:
        """Keep the verdict; the run is then complete."""
        ...
