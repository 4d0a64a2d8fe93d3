"""What is computed from clean bars."""

from nvtrader_pipelines.market.features import FEATURES as MARKET_FEATURES
from nvtrader_pipelines.storage.table import Column, Table, columns_of
from nvtrader_pipelines.storage.tables.columns import BAR

RETURNS = Table(
    "gold",
    "returns",
    BAR
    + columns_of(
        """
        adj_open double opening price adjusted like the close
        adj_close double adjusted close
        close_return double simple return from the previous bar's close; null on the first bar
        overnight_return double simple return from the previous bar's close to this open; null without opens
        span int sessions since the previous bar; 1 without a gap
        volume double shares traded
        """
    ),
    ("year",),
)
FEATURES = Table(
    "gold",
    "features",
    BAR
    + tuple(
        Column(feature.name, "double", (feature.__doc__ or feature.name).splitlines()[0]) for feature in MARKET_FEATURES
    ),
    ("year",),
)
REGIMES = Table(
    "gold",
    "regimes",
    columns_of(
        """
        source string source of the market
        session date session of the exchange (XNYS)
        regime string strong_down, weak_down, sideways or strong_up; looks ahead, only to judge by, never to decide
        segment int number of the segment between turning points, 0 first; known only afterwards
        slope double slope of the segment's filtered log index per session; known only afterwards
        market_return double mean close return of the source's names; 0 on the first session
        index_level double equally weighted index, 1 before the first session
        """
    ),
)
MARKET_PANEL = Table(
    "gold",
    "market_panel",
    columns_of(
        """
        source string source of the panel
        first_session date first session with an eligible symbol
        last_session date last session
        n_sessions long number of sessions, first and last included
        n_symbols long number of symbols
        symbols list<string> symbols in the panel's order
        feature_names list<string> features in the panel's order
        digest string SHA-256 of the panel's arrays
        returns_snapshot_id long snapshot of gold.returns it is made of
        features_snapshot_id long snapshot of gold.features it is made of
        clean_bars_snapshot_id long snapshot of silver.clean_bars behind them
        bars_snapshot_id long snapshot of bronze.bars behind them
        built_at timestamp when the row was written
        """
    ),
)
