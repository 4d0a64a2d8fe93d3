"""Figure of the Sharpe ratio curve: runs and search trials over time, with deflated ratios."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel, readable

_MAX_LABELS = 10
_ENOUGH = 0.95  # deflated Sharpe ratio from which a result counts as more than luck


def ratio_curve_figure(curve: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw Sharpe ratio, deflated ratios and maximum drawdown of each run, with interval and best so far.

    Search trials are small points between the runs.

    Args:
        curve: rows of `sharpe_ratio_curve`; drawn are the search trials, and the runs in the newest run's reported
            period (`from_<year>`), else in `all`.
        note: under the figure.
    """
    period = _reported_period(curve)
    is_trial = pl.col("kind") == "trial"
    shown = curve.filter(is_trial | (pl.col("period") == period)).sort("finished_at", "experiment", "run_id")
    shown = shown.with_columns(place=_places(shown["kind"] == "trial"))
    runs, trials = shown.filter(~is_trial), shown.filter(is_trial)
    figure = new_figure(f"Sharpe ratio of every completed run, {period.replace('_', ' ')}", note)
    ratios = panel(figure, 0.095, 0.58, 0.97, 0.88)
    worth = panel(figure, 0.095, 0.37, 0.97, 0.53)
    losses = panel(figure, 0.095, 0.19, 0.97, 0.33)
    if len(shown):
        _draw_trials((ratios, worth, losses), trials)
        _draw_ratios(ratios, runs)
        _draw_losses(losses, runs)
        _draw_worth(worth, runs)
        _label_times((ratios, worth, losses), shown)
    ratios.set_ylabel("Sharpe ratio, net\n(95 % interval)")
    worth.set_ylabel("deflated")
    losses.set_ylabel("drawdown")
    return Picture(figure)


def _reported_period(curve: pl.DataFrame) -> str:
    reported = curve.filter(pl.col("period").str.starts_with("from_")).sort("finished_at")
    return str(reported["period"][-1]) if len(reported) else "all"


def _places(is_trial: pl.Series) -> NDArray[np.float64]:
    """Horizontal places in order: runs are 1 apart, and all trials take no more room than all runs."""
    n_trials = int(is_trial.sum())
    step = min(0.5, (len(is_trial) - n_trials or n_trials) / max(n_trials, 1))
    room = np.where(is_trial.to_numpy(), step, 1.0)
    return np.cumsum(room) - room / 2.0


def _draw_trials(panels: Sequence[Axes], trials: pl.DataFrame) -> None:
    """Draw the search trials of each panel."""
    columns = (trials["sharpe"], trials["deflated_sharpe"], -trials["max_drawdown"])
    size = 36 if len(trials) <= 100 else 14
    for axes, heights in zip(panels, columns, strict=True):
        axes.scatter(
            trials["place"].to_numpy(), heights.to_numpy(), s=size, color=theme.PURPLE, alpha=0.5, linewidths=0.0
        )
    if len(trials):
        style = {"color": theme.ink(theme.PURPLE), "fontsize": theme.TEXT, "transform": panels[0].transAxes}
        panels[0].text(0.0, 1.04, "search trial, on its validation", **style)


def _draw_ratios(axes: Axes, runs: pl.DataFrame) -> None:
    order, sharpe = runs["place"].to_numpy(), runs["sharpe"].to_numpy()
    is_ranked = runs["rank"].is_not_null()
    best = runs.select(pl.when(is_ranked).then("sharpe").cum_max().forward_fill()).to_series().to_numpy()
    axes.step(order, best, where="post", color=theme.ORANGE, linewidth=2.5, zorder=2)
    axes.vlines(order, runs["sharpe_low"].to_numpy(), runs["sharpe_high"].to_numpy(), color=theme.GREY, linewidth=1.8)
    colors = [theme.BLUE if ranked else "white" for ranked in is_ranked]
    edges = [theme.BLUE if ranked else theme.GREY for ranked in is_ranked]
    axes.scatter(order, sharpe, s=80, color=colors, edgecolors=edges, linewidths=2.0, zorder=3)
    axes.axhline(0.0, color="black", linewidth=0.8)
    for number in range(len(runs)) if len(runs) <= 2 * _MAX_LABELS else ():
        axes.annotate(
            f"#{runs['rank'][number]}" if is_ranked[number] else "validation only",
            (order[number], sharpe[number]),
            xytext=(7, 5),
            textcoords="offset points",
            fontsize=theme.TEXT,
            va="bottom",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )
    axes.text(
        1.0,
        1.04,
        "best so far",
        color=theme.ink(theme.ORANGE),
        fontsize=theme.TEXT,
        ha="right",
        transform=axes.transAxes,
    )
    axes.text(0.87, 1.04, "run, with rank", color=theme.BLUE, fontsize=theme.TEXT, ha="right", transform=axes.transAxes)


def _draw_worth(axes: Axes, runs: pl.DataFrame) -> None:
    """Draw deflated Sharpe and information ratios, as of the end of each run."""
    order = runs["place"].to_numpy()
    for name, color, marker in (
        ("deflated_sharpe", theme.SKY, "o"),
        ("deflated_information_ratio", theme.GREEN, "D"),
    ):
        axes.scatter(order, runs[name].to_numpy(), s=60, color=color, marker=marker, zorder=3)
    axes.axhline(_ENOUGH, color="black", linewidth=0.8, linestyle="--")
    axes.set_ylim(0.0, 1.1)
    axes.set_yticks([0.0, 0.5, _ENOUGH], ["0", "0.5", f"{_ENOUGH:g}"])
    keys = (
        (0.0, "deflated, among all results by then: Sharpe ratio", theme.GREY),
        (0.46, "of net returns", theme.ink(theme.SKY)),
    )
    for left, text, color in (*keys, (0.62, "information ratio, best baseline", theme.GREEN)):
        axes.text(left, 1.06, text, color=color, fontsize=theme.TEXT, transform=axes.transAxes)


def _draw_losses(axes: Axes, runs: pl.DataFrame) -> None:
    width = min(0.5, 0.06 * len(runs))
    axes.bar(runs["place"].to_numpy(), -runs["max_drawdown"].to_numpy(), width=width, color=theme.VERMILION)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(top=0.0)


def _label_times(panels: Sequence[Axes], shown: pl.DataFrame) -> None:
    """Space results evenly, since many finish within minutes, and label as many as fit, runs before trials."""
    left, right = shown["place"][0] - 0.6, shown["place"][-1] + 0.6
    labeled: list[int] = []
    for i in sorted(range(len(shown)), key=lambda i: (shown["kind"][i] == "trial", -i)):
        if all(abs(shown["place"][i] - shown["place"][j]) >= (right - left) / (_MAX_LABELS + 1) for j in labeled):
            labeled.append(i)
    names = [
        f"{'search' if shown['kind'][i] == 'trial' else readable(shown['experiment'][i].split('@')[0], 14)}\n"
        f"{shown['finished_at'][i]:%Y-%m-%d\n%H:%M}"
        for i in labeled
    ]
    for axes in panels:
        axes.set_xlim(left, right)
        axes.set_xticks([shown["place"][i] for i in labeled], names, fontsize=theme.TEXT - 2)
        axes.tick_params(labelbottom=axes is panels[-1])
