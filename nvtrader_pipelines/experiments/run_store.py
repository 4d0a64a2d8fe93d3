"""Protocol of the store that a run writes to."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.plan import FoldSeed
from nvtrader_pipelines.experiments.policy_accounts import FoldThresholds, SeedWeights
from nvtrader_pipelines.policies.fit import Start
from nvtrader_pipelines.policies.rollout_tables import PREFERENCE_EPOCH


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """Policy file with the sampled episodes of its training."""

    fold: int
    seed: int
    archive: bytes
    rollouts: pl.DataFrame  # rows of a trajectory, phase train
    epochs: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PREFERENCE_EPOCH))  # of a tuning


class RunStore(Protocol):
    """Store of a run; every write is atomic and survives a kill."""

    def done(self) -> Collection[FoldSeed]:
        """Folds and seeds whose policies are stored."""
        ...

    def checkpoint(self, key: FoldSeed) -> bytes | None:
        """Last checkpoint of an interrupted training."""
        ...

    def start(self, key: FoldSeed) -> Start | None:
        """Policy that a training starts from, with the pairs of one that tunes it; None for random weights."""
        ...

    def store_checkpoint(self, key: FoldSeed, content: bytes) -> None:
        """Store a checkpoint in place of the previous one."""
        ...

    def store_policy(self, policy: TrainedPolicy) -> None:
        """Store a policy and drop its checkpoint."""
        ...

    def archives(self) -> Mapping[FoldSeed, bytes]:
        """Policies of the run so far; the parent's if it trains none."""
        ...

    def seal(self, seed_weights: SeedWeights, thresholds: FoldThresholds) -> None:
        """Seal the policies with the weights of seeds and the fitted thresholds of each fold."""
        ...

    def seed_weights(self) -> SeedWeights:
        """Weights of seeds by fold; empty where all weigh the same."""
        ...

    def thresholds(self) -> FoldThresholds:
        """Fitted thresholds by fold; empty where the timing needs no fit."""
        ...

    def store_record(self, record: BacktestRecord) -> None:
        """Store the back-test record of every account."""
        ...

    def curves_and_actions(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Equity curves and action logs of the stored record."""
        ...

    def store_verdict(self, verdict: pl.DataFrame) -> None:
        """Store the verdict, which completes the run."""
        ...
