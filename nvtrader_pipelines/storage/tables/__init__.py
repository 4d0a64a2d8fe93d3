"""Every table: its columns with their meaning, and how it is partitioned; one module per namespace."""

from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables.bronze import BARS, DELIVERIES
from nvtrader_pipelines.storage.tables.evaluation import (
    EVALUATIONS,
    OVERFITTING,
    PRUDEX,
    RATIO_CURVE,
    REGIME_EVALUATION,
    SCOREBOARD,
    SCORECARDS,
    STRESS,
    VALIDATION,
)
from nvtrader_pipelines.storage.tables.gold import FEATURES, MARKET_PANEL, REGIMES, RETURNS
from nvtrader_pipelines.storage.tables.portfolio import (
    AUDIT,
    FILLS,
    ORDERS,
    PORTFOLIO_STATE,
    REBALANCE_PLAN,
    TARGET_WEIGHTS,
)
from nvtrader_pipelines.storage.tables.preferences import PREFERENCE_PAIRS
from nvtrader_pipelines.storage.tables.rl import (
    ACTION_LOGS,
    EQUITY_CURVES,
    REWARD_DECOMPOSITION,
    RUNS,
    TRAINING_CURVES,
    TRAJECTORIES,
)
from nvtrader_pipelines.storage.tables.silver import CLEAN_BARS, QUARANTINE

PINNED = (BARS, CLEAN_BARS, RETURNS, FEATURES)  # panels and runs name the snapshots of these that they read
TABLES = (
    BARS,
    DELIVERIES,
    CLEAN_BARS,
    QUARANTINE,
    RETURNS,
    FEATURES,
    MARKET_PANEL,
    REGIMES,
    RUNS,
    TRAINING_CURVES,
    TRAJECTORIES,
    EQUITY_CURVES,
    ACTION_LOGS,
    REWARD_DECOMPOSITION,
    EVALUATIONS,
    RATIO_CURVE,
    REGIME_EVALUATION,
    VALIDATION,
    OVERFITTING,
    PRUDEX,
    STRESS,
    SCORECARDS,
    SCOREBOARD,
    REBALANCE_PLAN,
    TARGET_WEIGHTS,
    ORDERS,
    FILLS,
    PORTFOLIO_STATE,
    AUDIT,
    PREFERENCE_PAIRS,
)

__all__ = [
    "ACTION_LOGS",
    "AUDIT",
    "BARS",
    "CLEAN_BARS",
    "DELIVERIES",
    "EQUITY_CURVES",
    "EVALUATIONS",
    "FEATURES",
    "FILLS",
    "MARKET_PANEL",
    "ORDERS",
    "OVERFITTING",
    "PINNED",
    "PORTFOLIO_STATE",
    "PREFERENCE_PAIRS",
    "PRUDEX",
    "QUARANTINE",
    "RATIO_CURVE",
    "REBALANCE_PLAN",
    "REGIMES",
    "REGIME_EVALUATION",
    "RETURNS",
    "REWARD_DECOMPOSITION",
    "RUNS",
    "SCOREBOARD",
    "SCORECARDS",
    "STRESS",
    "TABLES",
    "TARGET_WEIGHTS",
    "TRAINING_CURVES",
    "TRAJECTORIES",
    "VALIDATION",
    "Table",
]
