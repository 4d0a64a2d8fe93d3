"""Figures of a search session: Sharpe ratios over trials, and importances of the knobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel

_BASE_LABEL, _LUCK_LABEL, _KEPT_LABEL = "base", "luck bar", "kept so far"
_BOTTOM = 0.025  # of the axes, where trials without a result are marked


@dataclass(frozen=True)
class SearchPoint:
    """Trial of a search, with what was known after it."""

    trial: int
    sharpe: float | None  # annual, net, on validation, over all seeds; None without a result
    is_kept: bool = False  # whether it was the best when it was judged
    luck: float | None = None  # Sharpe ratio that luck alone reaches after it; None before any result
    kept: float | None = None  # Sharpe ratio of the kept trial after it; None if none is kept


def search_figure(points: Sequence[SearchPoint], base: float, title: str, note: str | None = None) -> Picture:
    """Draw the Sharpe ratio of each trial, the kept one stepwise, the base and the luck bar.

    Args:
        points: trials in order.
        base: Sharpe ratio of the base.
        title: of the figure.
        note: under the figure.
    """
    figure = new_figure(title, note)
    axes = panel(figure, 0.085, 0.16, 0.82, 0.84)
    axes.axhline(base, color=theme.BLACK, linewidth=1.4)
    axes.set_xlim(0.5, max(len(points), 1) + 0.5)
    _draw_steps(axes, [point.kept for point in points], theme.BLUE, "-")
    _draw_steps(axes, [point.luck for point in points], theme.VERMILION, "--")
    _draw_points(axes, points)
    axes.margins(y=0.1)
    axes.set_xlabel("trial")
    axes.set_ylabel("Sharpe ratio on validation, net of costs")
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    if points:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False, fontsize=theme.TEXT, borderpad=0.0
        )
    label_ends(axes, _end_labels(points, base))
    return Picture(figure)


def importance_figure(importances: Mapping[str, float], title: str, note: str | None = None) -> Picture:
    """Draw the importance of each knob, a share of 1, as bars from the largest down."""
    figure = new_figure(title, note)
    axes = panel(figure, 0.17, 0.16, 0.96, 0.88)
    names, shares = list(importances), list(importances.values())
    axes.bar_label(
        axes.barh(names, shares, color=theme.BLUE), [f"{share:.0%}" for share in shares], padding=6, fontsize=theme.TEXT
    )
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("importance, all knobs together 100 %")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return Picture(figure)


def _draw_steps(axes: Axes, heights: Sequence[float | None], color: str, dashes: str) -> None:
    """Draw a height from each trial to the next, the last one to the edge of the axes."""
    steps = np.array([*heights, *heights[-1:]], dtype=np.float64)  # None becomes NaN, which is not drawn
    places = np.minimum(np.arange(len(steps)) + 1.0, len(heights) + 0.5)
    axes.step(places, steps, where="post", color=color, linewidth=2.5, linestyle=dashes)


def _draw_points(axes: Axes, points: Sequence[SearchPoint]) -> None:
    others = [(point.trial, point.sharpe) for point in points if point.sharpe is not None and not point.is_kept]
    kept = [(point.trial, point.sharpe) for point in points if point.is_kept]
    without = [(point.trial, _BOTTOM) for point in points if point.sharpe is None]
    size = 60 if len(points) <= 100 else 22
    if others:
        axes.scatter(*zip(*others, strict=True), s=size, color=theme.SKY, label="trial", zorder=3)
    if kept:
        axes.scatter(
            *zip(*kept, strict=True),
            s=2.4 * size,
            color=theme.BLUE,
            marker="D",
            edgecolors="white",
            label="kept",
            zorder=4,
        )
    if without:
        axes.scatter(
            *zip(*without, strict=True),
            s=size,
            color=theme.OTHERS_GREY,
            marker="x",
            linewidths=2.0,
            label="without a result: pruned, infeasible or failed",
            transform=axes.get_xaxis_transform(),
            zorder=3,
        )


def _end_labels(points: Sequence[SearchPoint], base: float) -> list[EndLabel]:
    last = points[-1] if points else SearchPoint(0, None)
    lines = [
        (last.kept, _KEPT_LABEL, theme.BLUE),
        (last.luck, _LUCK_LABEL, theme.VERMILION),
        (base, _BASE_LABEL, theme.BLACK),
    ]
    return [
        EndLabel(value, f"{name}  {value:.2f}", color, bold=name == _KEPT_LABEL)
        for value, name, color in lines
        if value is not None
    ]
