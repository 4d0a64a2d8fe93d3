"""All tables with their columns and partitions, grouped by subject."""

from nvtrader_pipelines.market import tables as market
from nvtrader_pipelines.market.features import feature_schema
from nvtrader_pipelines.storage.table import Table
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
    WORLD_RESULTS,
)
from nvtrader_pipelines.storage.tables.portfolio import (
    ACTIVE_POLICY,
    AUDIT,
    FILLS,
    ORDERS,
    PORTFOLIO_STATE,
    REBALANCE_PLAN,
    TARGET_WEIGHTS,
)
from nvtrader_pipelines.storage.tables.preferences import (
    DECISIONS,
    DPO_CHECKS,
    DPO_EPOCHS,
    OUTCOMES,
    PREFERENCE_PAIRS,
    REFUSED_DECISIONS,
)
from nvtrader_pipelines.storage.tables.promotion import PROMOTION_DECISIONS
from nvtrader_pipelines.storage.tables.research import ALPHAS, DOCUMENTS, LLM_CALLS
from nvtrader_pipelines.storage.tables.research import SESSIONS as RESEARCH_SESSIONS
from nvtrader_pipelines.storage.tables.research import TRIALS as RESEARCH_TRIALS
from nvtrader_pipelines.storage.tables.rl import (
    ACTION_LOGS,
    EQUITY_CURVES,
    REWARD_DECOMPOSITION,
    RUNS,
    TRAINING_CURVES,
    TRAJECTORIES,
)
from nvtrader_pipelines.worlds.book_tables import ORDER_BOOK

BARS = Table("bronze", "bars", market.BARS, ("year",))
DELIVERIES = Table("bronze", "deliveries", market.DELIVERIES)
CLEAN_BARS = Table("silver", "clean_bars", market.CLEAN_BARS, ("year",))
QUARANTINE = Table("silver", "quarantine", market.QUARANTINE, ("year",))
SERIES = Table("silver", "series", market.SERIES)
ORDER_BOOKS = Table("silver", "order_books", ORDER_BOOK, ("book",))
RETURNS = Table("gold", "returns", market.RETURNS, ("year",))
FEATURES = Table("gold", "features", feature_schema(), ("year",))
REGIMES = Table("gold", "regimes", market.REGIMES)
MARKET_PANEL = Table("gold", "market_panel", market.PANELS)

PINNED = (BARS, CLEAN_BARS, SERIES, RETURNS, FEATURES)  # tables whose snapshots panels and runs name, if written
TABLES: tuple[Table, ...] = (
    BARS,
    DELIVERIES,
    CLEAN_BARS,
    QUARANTINE,
    SERIES,
    ORDER_BOOKS,
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
    WORLD_RESULTS,
    SCORECARDS,
    SCOREBOARD,
    REBALANCE_PLAN,
    TARGET_WEIGHTS,
    ORDERS,
    FILLS,
    PORTFOLIO_STATE,
    AUDIT,
    ACTIVE_POLICY,
    PROMOTION_DECISIONS,
    DECISIONS,
    REFUSED_DECISIONS,
    OUTCOMES,
    PREFERENCE_PAIRS,
    DPO_CHECKS,
    DPO_EPOCHS,
    LLM_CALLS,
    ALPHAS,
    RESEARCH_SESSIONS,
    RESEARCH_TRIALS,
    DOCUMENTS,
)
