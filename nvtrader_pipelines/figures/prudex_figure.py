"""Figures of PRUDEX-Compass by name."""

from nvtrader_pipelines.evaluation.prudex.compass import Compass
from nvtrader_pipelines.figures.canvas import Picture
from nvtrader_pipelines.figures.prudex_compass import compass_figure, pride_star_figure
from nvtrader_pipelines.figures.prudex_extremes import extremes_figure
from nvtrader_pipelines.figures.prudex_holdings import heat_figure, plane_figure
from nvtrader_pipelines.figures.prudex_reliability import profile_figure, rank_figure


def prudex_figures(compass: Compass) -> dict[str, Picture]:
    """Draw the source's five charts, the actions by t-SNE and the heatmap of weights, by name."""
    table, note = compass.table, compass.note
    return {
        "compass": compass_figure(table, note=note),
        "pride_star": pride_star_figure(table, note=note),
        "performance_profile": profile_figure(compass.profiles, table, note=note),
        "rank_distribution": rank_figure(compass.ranks, table, note=note),
        "extreme_markets": extremes_figure(table, note=note),
        "actions": plane_figure(compass.plane, table, note=note),
        "weights": heat_figure(compass.heat, table, note=note),
    }
