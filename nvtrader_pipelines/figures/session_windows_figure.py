"""Figure of the distribution of results over windows of sessions."""

import polars as pl
from matplotlib.ticker import PercentFormatter

from nvtrader_pipelines.evaluation.session_windows import window_distribution
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel, readable

_TOP, _ROW, _BOTTOM = 0.75, 0.8, 1.6  # inches


def session_windows_figure(windows: pl.DataFrame, title: str, note: str | None = None) -> Picture:
    """Draw a box from quartile to quartile per account, with whiskers to the lowest and the highest window."""
    distribution = window_distribution(windows)
    n_accounts = len(distribution)
    height = _TOP + _ROW * n_accounts + _BOTTOM
    figure = new_figure(title, note, height)
    axes = panel(figure, 0.17, _BOTTOM / height, 0.97, 1.0 - _TOP / height)
    boxes = axes.boxplot(
        [windows.filter(policy=name)["net_return"].to_numpy() for name in distribution["policy"]],
        whis=(0.0, 100.0),
        orientation="horizontal",
        patch_artist=True,
        widths=0.5,
        tick_labels=[readable(name) for name in distribution["policy"]],
        medianprops={"color": "black", "linewidth": 2.5},
    )
    for position, box in enumerate(boxes["boxes"]):
        box.set_facecolor(theme.LIGHT_GREY if position else theme.SKY)
    for position, median in enumerate(distribution["median"], 1):
        axes.annotate(
            f"{median:+.1%}", (median, position - 0.28), ha="center", va="bottom", fontsize=theme.TEXT, color=theme.BLUE
        )
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=theme.LIGHT_GREY, linewidth=0.8)
    axes.axvline(0.0, color="black", linewidth=0.8, zorder=0)
    axes.margins(x=0.03)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("net return of a window: lowest, quartiles, median and highest")
    return Picture(figure)
