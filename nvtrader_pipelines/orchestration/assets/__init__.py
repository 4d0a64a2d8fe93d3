"""Asset graph, one module per group, with the owners and columns of every asset."""

import dagster as dg

from nvtrader_pipelines.orchestration.assets.active_policy import active_policy
from nvtrader_pipelines.orchestration.assets.bronze import bars
from nvtrader_pipelines.orchestration.assets.evaluation import walk_forward_evaluation
from nvtrader_pipelines.orchestration.assets.gold import features, market_panel, market_regimes, returns
from nvtrader_pipelines.orchestration.assets.policies import trained_policy, training_curve
from nvtrader_pipelines.orchestration.assets.portfolio import orders, portfolio_state, rebalance_plan, target_weights
from nvtrader_pipelines.orchestration.assets.preferences import preference_pairs
from nvtrader_pipelines.orchestration.assets.prudex import prudex
from nvtrader_pipelines.orchestration.assets.ratio_curve import sharpe_ratio_curve
from nvtrader_pipelines.orchestration.assets.regimes import regime_evaluation
from nvtrader_pipelines.orchestration.assets.scoreboard import scoreboard
from nvtrader_pipelines.orchestration.assets.scorecards import scorecards
from nvtrader_pipelines.orchestration.assets.silver import refine
from nvtrader_pipelines.orchestration.assets.stress import stress
from nvtrader_pipelines.orchestration.assets.trajectories import walk_forward
from nvtrader_pipelines.orchestration.assets.validation import validation
from nvtrader_pipelines.orchestration.assets.versions import experiment_version
from nvtrader_pipelines.orchestration.reports import asset_key, table_metadata
from nvtrader_pipelines.storage.tables import TABLES

OWNERS = ["team:nvtrader"]
COLUMNS = {asset_key(table): table_metadata(table) for table in TABLES}


def add_owners_and_columns(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Add the owners, and the columns of the table if the asset has one."""
    return spec.merge_attributes(owners=OWNERS, metadata=COLUMNS.get(spec.key, {}))


ASSETS = [
    asset.map_asset_specs(add_owners_and_columns)
    for asset in (
        bars,
        refine,
        returns,
        features,
        market_panel,
        market_regimes,
        experiment_version,
        trained_policy,
        training_curve,
        walk_forward,
        walk_forward_evaluation,
        regime_evaluation,
        stress,
        sharpe_ratio_curve,
        validation,
        prudex,
        scorecards,
        scoreboard,
        active_policy,
        orders,
        portfolio_state,
        target_weights,
        rebalance_plan,
        preference_pairs,
    )
]

__all__ = ["ASSETS"]
