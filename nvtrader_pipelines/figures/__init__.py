"""Figures of results, as PNG or SVG, at slide size, in a palette safe for color blindness."""

from nvtrader_pipelines.figures.comparison_figure import comparison_figure
from nvtrader_pipelines.figures.equity import equity_figure
from nvtrader_pipelines.figures.exposure_figure import exposure_figure
from nvtrader_pipelines.figures.guard_figure import guard_slices_figure
from nvtrader_pipelines.figures.learning import learning_figure
from nvtrader_pipelines.figures.portfolio_figures import account_figures, plan_figures, stages_figures
from nvtrader_pipelines.figures.prudex_compass import prudex_figures
from nvtrader_pipelines.figures.ratio_curve_figures import ratio_curve_figure
from nvtrader_pipelines.figures.regime_figures import regime_evaluation_figure, regimes_figures
from nvtrader_pipelines.figures.reward_terms import reward_terms_figure
from nvtrader_pipelines.figures.scoreboard_figure import scoreboard_figures
from nvtrader_pipelines.figures.search_figure import importance_figure, search_figure
from nvtrader_pipelines.figures.session_windows_figure import session_windows_figure
from nvtrader_pipelines.figures.stress_figure import stress_figures
from nvtrader_pipelines.figures.tear_sheet_figure import tear_sheet_figure
from nvtrader_pipelines.figures.validation_figure import validation_figures
from nvtrader_pipelines.figures.weights import weights_figure
from nvtrader_pipelines.figures.world_figure import world_figure
from nvtrader_pipelines.figures.world_test_figures import episode_rewards_figure, quotes_figure

__all__ = [
    "account_figures",
    "comparison_figure",
    "episode_rewards_figure",
    "equity_figure",
    "exposure_figure",
    "guard_slices_figure",
    "importance_figure",
    "learning_figure",
    "plan_figures",
    "prudex_figures",
    "quotes_figure",
    "ratio_curve_figure",
    "regime_evaluation_figure",
    "regimes_figures",
    "reward_terms_figure",
    "scoreboard_figures",
    "search_figure",
    "session_windows_figure",
    "stages_figures",
    "stress_figures",
    "tear_sheet_figure",
    "validation_figures",
    "weights_figure",
    "world_figure",
]
