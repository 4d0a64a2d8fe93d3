"""Reliability in PRUDEX-Compass: performance profiles and rank distributions."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nvtrader_pipelines.evaluation.prudex.measures import RANKED
from nvtrader_pipelines.evaluation.prudex.record import ENSEMBLE, REFERENCE
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel
from nvtrader_pipelines.figures.prudex_palette import Style, styles, with_hidden

_KEY = {"loc": "upper left", "bbox_to_anchor": (0.765, 0.89), "frameon": False, "fontsize": theme.TEXT}
_GAP_POINTS = 12.0  # total width of the gaps between a panel's bars
_RANKED_BY = {
    "total_return": "total return",
    "sharpe": "Sharpe ratio",
    "volatility": "volatility\n(lowest first)",
    "entropy": "entropy",
}


def profile_figure(profiles: pl.DataFrame, table: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw the share of runs (test windows by seeds) with a score above tau, with 95 % bands.

    Args:
        profiles: policy, kind, tau, share, low and high.
        table: rows of PRUDEX.
        note: under the figure.
    """
    figure = new_figure("Performance profile: total return against 1/N", with_hidden(table, note))
    axes = panel(figure, 0.095, 0.21, 0.75, 0.88)
    drawn = [style for style in styles(table) if style.policy != REFERENCE]
    for style in reversed(drawn):
        mine = profiles.filter(pl.col("policy") == style.policy, pl.col("kind") == style.kind).sort("tau")
        own, tau = style.kind == ENSEMBLE, mine["tau"]
        line = {"color": style.color, "linestyle": style.dashes, "linewidth": 3.0 if own else 1.6}
        axes.step(tau, mine["share"], where="post", **line)
        if own and not mine["low"].has_nulls():
            axes.fill_between(tau, mine["low"], mine["high"], step="post", color=style.color, alpha=0.15, linewidth=0)
    axes.axvline(50.0, color=theme.BLACK, linestyle="--", linewidth=1.6)
    axes.annotate("1/N", (50.0, 1.0), xytext=(6, -2), textcoords="offset points", fontsize=theme.TEXT, va="top")
    axes.set_xlim(0.0, 100.0)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("score τ of a run: 50 is 1/N in the same test window")
    axes.set_ylabel("runs with a higher score")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    lines = [
        Line2D([], [], color=curve.color, linestyle=curve.dashes, linewidth=2.5, label=curve.label) for curve in drawn
    ]
    figure.legend(handles=lines, **_KEY)
    return Picture(figure)


def rank_figure(ranks: pl.DataFrame, table: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw the rank distribution of each policy by four statistics; 1 is best.

    Args:
        ranks: policy, kind, statistic, rank and share.
        table: rows of PRUDEX.
        note: under the figure.
    """
    figure = new_figure("Rank distribution over seeds and test windows", with_hidden(table, note))
    drawn = styles(table)
    width = 0.66 / len(RANKED)
    for i, statistic in enumerate(RANKED):
        left = 0.085 + i * width
        axes = panel(figure, left, 0.21, left + width - 0.02, 0.83)
        _stack(axes, ranks.filter(pl.col("statistic") == statistic), drawn)
        axes.set_title(_RANKED_BY[statistic], fontsize=theme.TEXT)
        axes.tick_params(labelleft=i == 0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    figure.axes[0].set_ylabel("share of draws")
    figure.text(0.085 + 0.33, 0.12, "rank, 1 is best", fontsize=theme.TEXT, ha="center")
    patches = [Patch(facecolor=curve.shade, label=curve.label) for curve in drawn]
    others = set(ranks.select("policy", "kind").unique().iter_rows()) - {(curve.policy, curve.kind) for curve in drawn}
    if others:
        patches.append(Patch(facecolor=theme.LIGHT_GREY, label=f"{len(others)} others"))
    figure.legend(handles=patches, **_KEY)
    return Picture(figure)


def _stack(axes: Axes, ranks: pl.DataFrame, drawn: list[Style]) -> None:
    """Draw a bar per rank, stacked by policy, with policies without a style on top."""
    if not len(ranks):
        return
    n_ranks = ranks["rank"].n_unique()
    shares = np.zeros((len(drawn) + 1, n_ranks))
    for row, style in zip(shares, drawn, strict=False):
        mine = ranks.filter(pl.col("policy") == style.policy, pl.col("kind") == style.kind).sort("rank")
        row[: len(mine)] = mine["share"]
    shares[-1] = 1.0 - shares.sum(axis=0)
    edges = np.arange(n_ranks + 1) + 0.5
    colors = [*(style.shade for style in drawn), theme.LIGHT_GREY]
    axes.stackplot(edges, np.pad(shares, ((0, 0), (0, 1)), "edge"), step="post", colors=colors)
    axes.vlines(edges, 0.0, 1.0, color="white", linewidth=_GAP_POINTS / n_ranks)
    axes.set_ylim(0.0, 1.0)
    axes.grid(visible=False)
