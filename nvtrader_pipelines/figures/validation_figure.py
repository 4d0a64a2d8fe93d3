"""Figures of trial validation: deflated information ratios, and backtest overfitting."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel, readable

_REFERENCES = {"best_baseline": "over its best baseline", "anchor": "over its anchor, else 1/N"}
_MAX_LABELS = 9
_FEW_LABELS = 6  # up to which whole names have room
_MAX_NUMBERS = 18
_N_BINS = 31
_MAX_POINTS = 3000  # of a scatter


def validation_figures(trials: pl.DataFrame, overfitting: pl.DataFrame, note: str | None = None) -> dict[str, Picture]:
    """Draw `information_ratio_<source>` and `overfitting_<source>` per source, in its reported period."""
    figures: dict[str, Picture] = {}
    for (source,), rows in trials.partition_by("source", as_dict=True, maintain_order=True).items():
        period = reported_period(rows["period"])
        inside = (pl.col("source") == source) & (pl.col("period") == period)
        figures[f"information_ratio_{source}"] = information_ratio_figure(rows.filter(pl.col("period") == period), note)
        row = overfitting.filter(inside, pl.col("against") == "best_baseline")
        figures[f"overfitting_{source}"] = overfitting_figure(row, note)
    return figures


def information_ratio_figure(trials: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw the information ratios of one source's period, and their maximum without skill."""
    figure = new_figure(_title("Information ratio of every trial", trials), note)
    for (against, words), bottom, top in zip(_REFERENCES.items(), (0.55, 0.18), (0.87, 0.50), strict=True):
        axes = panel(figure, 0.095, bottom, 0.97, top)
        rows = trials.filter(pl.col("against") == against)
        _draw_trials(axes, rows)
        axes.set_ylabel(f"information ratio\n{words}")
        axes.tick_params(labelbottom=against == "anchor")
    numbered = trials["run_id"].n_unique() <= _MAX_NUMBERS
    keys = (
        ("trial, 95 % interval", theme.BLUE),
        ("best of all without skill", theme.ORANGE),
        ("numbers: deflated, as probability" if numbered else "", theme.GREY),
    )
    for (text, color), left in zip(keys, (0.095, 0.33, 0.60), strict=True):
        figure.text(left, 0.90, text, color=theme.ink(color), fontsize=theme.TEXT, va="center")
    return Picture(figure)


def _title(text: str, rows: pl.DataFrame) -> str:
    if not len(rows):
        return text
    return f"{text}, {readable(rows['source'][0])}, {rows['period'][0].replace('_', ' ')}"


def _draw_trials(axes: Axes, rows: pl.DataFrame) -> None:
    order = np.arange(len(rows))
    axes.axhline(0.0, color="black", linewidth=0.8)
    margin = 0.4 + 0.03 * len(rows)
    axes.set_xlim(-margin, max(len(rows), 1) - 1.0 + margin)
    if rows["sharpe"].null_count() < len(rows):
        axes.vlines(
            order, rows["sharpe_low"].to_numpy(), rows["sharpe_high"].to_numpy(), color=theme.GREY, linewidth=1.8
        )
        axes.scatter(order, rows["sharpe"].to_numpy(), s=60, color=theme.BLUE, zorder=3)
    thresholds = rows["expected_maximum_sharpe"].drop_nulls()
    if len(thresholds):
        axes.axhline(float(thresholds[0]), color=theme.ORANGE, linewidth=2.5, linestyle="--", zorder=2)
    for i, (sharpe, worth) in enumerate(rows.select("sharpe", "deflated_sharpe").iter_rows()):
        if worth is not None and len(rows) <= _MAX_NUMBERS:
            axes.annotate(
                f"{worth:.2f}",
                (i, sharpe),
                xytext=(8, 0),
                textcoords="offset points",
                fontsize=theme.TEXT,
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            )
    every = -(-len(rows) // _MAX_LABELS) or 1
    shown = list(range(len(rows) - 1, -1, -every))
    longest = 16 if len(shown) <= _FEW_LABELS else 11
    names = [f"{readable(rows['experiment'][i], longest)}\n{short_id(rows['run_id'][i])}" for i in shown]
    axes.set_xticks(shown, names, fontsize=theme.TEXT - 2)


def overfitting_figure(row: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw the out-of-sample ranks of the best in-sample trial, and the degradation of its information ratio.

    Without logits in the row of OVERFITTING, the figure shows the row's note.
    """
    figure = new_figure(_title("Overfitting of the best trial over its best baseline", row), note)
    if not len(row) or row["logits"][0] is None:
        reason = row["note"][0] if len(row) else "there are no trials yet"
        figure.text(0.5, 0.5, str(reason), fontsize=theme.TEXT, ha="center", va="center", wrap=True)
        return Picture(figure)
    values = row.row(0, named=True)
    _draw_logits(figure, panel(figure, 0.085, 0.17, 0.47, 0.74), values)
    _draw_degradation(figure, panel(figure, 0.58, 0.17, 0.97, 0.74), values)
    return Picture(figure)


def _draw_logits(figure: Figure, axes: Axes, found: dict[str, object]) -> None:
    logits = np.asarray(found["logits"], dtype=np.float64)
    edge = max(float(np.abs(logits).max()), 1.0) * 1.02
    edges = np.linspace(-edge, edge, _N_BINS + 1)
    weights = np.full(len(logits), 1.0 / len(logits))
    halves = (logits <= 0.0, logits > 0.0)
    parts, shares = [logits[half] for half in halves], [weights[half] for half in halves]
    axes.hist(parts, bins=edges.tolist(), weights=shares, color=[theme.VERMILION, theme.BLUE], stacked=True)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel("logit of its rank out of sample")
    axes.set_ylabel("share of combinations")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    head = f"Probability of backtest overfitting {found['probability_of_overfitting']:.2f}"
    figure.text(0.085, 0.875, head, fontsize=theme.TEXT + 2, fontweight="bold", color=theme.ink(theme.VERMILION))
    compared, ever = found["n_compared"], found["n_trials"]
    trials = f"{ever} trials" if compared == ever else f"{compared} of {ever} trials"
    text = f"{trials}, {found['n_combinations']:,} halves of {found['n_blocks']} blocks"
    figure.text(0.085, 0.80, f"red: in the worse half\n{text}", fontsize=theme.TEXT, color=theme.GREY, va="center")


def _draw_degradation(figure: Figure, axes: Axes, found: dict[str, object]) -> None:
    inside, outside = (np.asarray(found[name], dtype=np.float64) for name in ("in_sample", "out_of_sample"))
    every = -(-len(inside) // _MAX_POINTS)
    axes.scatter(inside[::every], outside[::every], s=9, color=theme.BLUE, alpha=0.25, linewidths=0, rasterized=True)
    ends = np.array([inside.min(), inside.max()])
    slope, intercept = (float(str(found[f"degradation_{name}"])) for name in ("slope", "intercept"))
    axes.plot(ends, intercept + slope * ends, color=theme.ORANGE, linewidth=2.5)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.margins(x=0.03)
    axes.set_xlabel("information ratio of the best trial, in sample")
    axes.set_ylabel("the same trial, out of sample")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    head = f"Loses out of sample in {found['probability_of_loss']:.0%}"
    figure.text(0.58, 0.875, head, fontsize=theme.TEXT + 2, fontweight="bold", color=theme.BLUE)
    text = f"degradation: slope {slope:.2f}, R² {found['degradation_r_squared']:.2f}"
    figure.text(0.58, 0.80, text, fontsize=theme.TEXT, color=theme.ink(theme.ORANGE), va="center")
