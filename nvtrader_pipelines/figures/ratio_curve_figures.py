"""Figure of the Sharpe ratio curve: every run over time, with deflated ratios."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nvtrader_pipelines.figures.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    TEXT,
    VERMILION,
    Picture,
    ink,
    new_figure,
    panel,
    readable,
)

_MAX_LABELS = 10
_ENOUGH = 0.95  # deflated Sharpe ratio from which a result counts as more than luck


def ratio_curve_figure(curve: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw each run's net Sharpe ratio with interval, best so far, deflated ratios and maximum drawdown.

    Args:
        curve: rows of `sharpe_ratio_curve`; drawn is the newest run's reported period (`from_<year>`), else `all`.
        note: under the figure.
    """
    period = _reported_period(curve)
    runs = curve.filter(pl.col("period") == period).sort("finished_at", "run_id")
    figure = new_figure(f"Sharpe ratio of every completed run, {period.replace('_', ' ')}", note)
    ratios = panel(figure, 0.095, 0.58, 0.97, 0.88)
    worth = panel(figure, 0.095, 0.37, 0.97, 0.53)
    losses = panel(figure, 0.095, 0.19, 0.97, 0.33)
    if len(runs):
        _draw_ratios(ratios, runs)
        _draw_losses(losses, runs)
        _draw_worth(worth, runs)
        _name_runs((ratios, worth, losses), runs)
    ratios.set_ylabel("Sharpe ratio, net\n(95 % interval)")
    worth.set_ylabel("deflated")
    losses.set_ylabel("drawdown")
    return Picture(figure)


def _reported_period(curve: pl.DataFrame) -> str:
    reported = curve.filter(pl.col("period").str.starts_with("from_")).sort("finished_at")
    return str(reported["period"][-1]) if len(reported) else "all"


def _draw_ratios(axes: Axes, runs: pl.DataFrame) -> None:
    order = np.arange(len(runs))
    sharpe = runs["sharpe"].to_numpy()
    is_ranked = runs["rank"].is_not_null()
    best = runs.select(pl.when(is_ranked).then("sharpe").cum_max().forward_fill()).to_series().to_numpy()
    axes.step(order, best, where="post", color=ORANGE, linewidth=2.5, zorder=2)
    axes.vlines(order, runs["sharpe_low"].to_numpy(), runs["sharpe_high"].to_numpy(), color=GREY, linewidth=1.8)
    colors = [BLUE if ranked else "white" for ranked in is_ranked]
    edges = [BLUE if ranked else GREY for ranked in is_ranked]
    axes.scatter(order, sharpe, s=80, color=colors, edgecolors=edges, linewidths=2.0, zorder=3)
    axes.axhline(0.0, color="black", linewidth=0.8)
    for number in range(len(runs)) if len(runs) <= 2 * _MAX_LABELS else ():
        axes.annotate(
            f"#{runs['rank'][number]}" if is_ranked[number] else "validation only",
            (number, sharpe[number]),
            xytext=(7, 5),
            textcoords="offset points",
            fontsize=TEXT,
            va="bottom",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )
    axes.text(1.0, 1.04, "best so far", color=ink(ORANGE), fontsize=TEXT, ha="right", transform=axes.transAxes)
    axes.text(0.87, 1.04, "run, with rank", color=BLUE, fontsize=TEXT, ha="right", transform=axes.transAxes)


def _draw_worth(axes: Axes, runs: pl.DataFrame) -> None:
    """Draw deflated Sharpe and information ratios, as of the end of each run."""
    order = np.arange(len(runs))
    for name, color, marker in (("deflated_sharpe", SKY, "o"), ("deflated_information_ratio", GREEN, "D")):
        axes.scatter(order, runs[name].to_numpy(), s=60, color=color, marker=marker, zorder=3)
    axes.axhline(_ENOUGH, color="black", linewidth=0.8, linestyle="--")
    axes.set_ylim(0.0, 1.1)
    axes.set_yticks([0.0, 0.5, _ENOUGH], ["0", "0.5", f"{_ENOUGH:g}"])
    keys = ((0.0, "deflated, among the runs by then: Sharpe ratio", GREY), (0.46, "of net returns", ink(SKY)))
    for left, text, color in (*keys, (0.62, "information ratio, best baseline", GREEN)):
        axes.text(left, 1.06, text, color=color, fontsize=TEXT, transform=axes.transAxes)


def _draw_losses(axes: Axes, runs: pl.DataFrame) -> None:
    axes.bar(np.arange(len(runs)), -runs["max_drawdown"].to_numpy(), width=min(0.5, 0.06 * len(runs)), color=VERMILION)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(top=0.0)


def _name_runs(panels: Sequence[Axes], runs: pl.DataFrame) -> None:
    """Space runs evenly, since many finish within minutes, and label as many as fit."""
    every = -(-len(runs) // _MAX_LABELS)
    shown = list(range(len(runs) - 1, -1, -every))
    names = [
        f"{readable(runs['experiment'][i].split('@')[0], 14)}\n{runs['finished_at'][i]:%Y-%m-%d\n%H:%M}" for i in shown
    ]
    for axes in panels:
        axes.set_xlim(-0.6, len(runs) - 0.4)
        axes.set_xticks(shown, names, fontsize=TEXT - 2)
        axes.tick_params(labelbottom=axes is panels[-1])
