"""Splitters: ways to cut sessions into folds that train on some sessions and test others."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.evaluation.splits.combinatorial_purged import CombinatorialPurged
from nvtrader_pipelines.evaluation.splits.fold import MIN_TEST_SESSIONS, BacktestPaths, Block, Fold, Window
from nvtrader_pipelines.evaluation.splits.holdout import Holdout
from nvtrader_pipelines.evaluation.splits.purged_kfold import PurgedKFold
from nvtrader_pipelines.evaluation.splits.purging import PurgedBlocks
from nvtrader_pipelines.evaluation.splits.walk_forward import WalkForward

Splitter = Annotated[
    WalkForward | Holdout | CombinatorialPurged | PurgedKFold, Field(discriminator="kind"), Family("splitters")
]

__all__ = [
    "MIN_TEST_SESSIONS",
    "BacktestPaths",
    "Block",
    "CombinatorialPurged",
    "Fold",
    "Holdout",
    "PurgedBlocks",
    "PurgedKFold",
    "Splitter",
    "WalkForward",
    "Window",
]
