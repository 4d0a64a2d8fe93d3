"""The asset graph, one module per group."""

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

ASSETS = [
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
]

__all__ = ["ASSETS"]
