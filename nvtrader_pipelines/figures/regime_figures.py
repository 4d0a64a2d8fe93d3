"""Figures of market regimes, and of the accounts' results in each."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator, PercentFormatter
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.regime_evaluation import ALL
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel, readable
from nvtrader_pipelines.market.calendar import Calendars

HINDSIGHT = "Regimes are labeled with hindsight: they show where a policy earned, but no policy could have known them."
RANKS = "Labeled with hindsight: no policy could have known them. Names rank slopes: in a rising market sideways rises."
_COLORS = {
    "strong_down": theme.VERMILION,
    "down": theme.VERMILION,
    "weak_down": theme.ORANGE,
    "sideways": theme.OTHERS_GREY,
    "weak_up": theme.SKY,
    "up": theme.BLUE,
    "strong_up": theme.BLUE,
}
_BAR_COLORS = (theme.BLUE, theme.ORANGE, theme.GREEN)
_NEWEST_YEARS = 3  # in the lower panel, at most a third of the history
_WIDE = 5.0  # ratio of highest to lowest level from which 1-2-5 ticks suffice
_GROUP = 0.8  # share of a regime's width taken by bars


def regimes_figure(rows: pl.DataFrame, title: str, periods_per_year: int, note: str | None = RANKS) -> Picture:
    """Draw one source's index in the colors of its `gold.regimes`, and its newest years."""
    figure = new_figure(title, note)
    ordered = rows.sort("session")
    whole, newest = panel(figure, 0.095, 0.57, 0.745, 0.88), panel(figure, 0.095, 0.13, 0.745, 0.49)
    part = ordered.tail(min(_NEWEST_YEARS * periods_per_year, len(ordered) // 3))
    for axes, shown in ((whole, ordered), (newest, part)):
        _draw_index(axes, shown)
        axes.set_yscale("log")
        axes.set_ylabel("equally weighted\nindex (log scale)")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}x"))
        axes.xaxis_date()
        axes.yaxis.set_major_locator(_ticks(shown["index_level"]))
    _key_to_regimes(figure, ordered, periods_per_year)
    return Picture(figure)


def regimes_figures(rows: pl.DataFrame, calendars: Calendars) -> dict[str, Picture]:
    """Draw the regimes of each source, by source name."""
    return {
        source: regimes_figure(
            rows.filter(pl.col("source") == source),
            f"Regimes of the market {readable(source)}",
            calendars.of(source).periods_per_year,
        )
        for source in rows["source"].unique().sort()
    }


def regime_evaluation_figure(evaluation: pl.DataFrame, title: str, note: str | None = HINDSIGHT) -> Picture:
    """Draw Sharpe ratio (with intervals) and growth per regime: policy, anchor, and 1/N or best baseline."""
    figure = new_figure(title, note)
    ratios = panel(figure, 0.095, 0.53, 0.97, 0.83)
    growth = panel(figure, 0.095, 0.19, 0.97, 0.47)
    regimes = evaluation["regime"].unique(maintain_order=True).to_list()
    accounts = _accounts(evaluation)
    width = _GROUP / len(accounts)
    for k, name in enumerate(accounts):
        rows = evaluation.filter(pl.col("policy") == name)
        places = np.arange(len(regimes), dtype=np.float64) + width * (k - 0.5 * (len(accounts) - 1))
        _draw_bars(ratios, growth, rows, (places, width, _BAR_COLORS[k]))
        figure.text(
            0.095 + 0.29 * k,
            0.885,
            f"■ {readable(name, 20)}",
            color=theme.ink(_BAR_COLORS[k]),
            fontsize=theme.TEXT,
            va="center",
        )
    _finish_bars(ratios, growth, evaluation.filter(pl.col("policy") == accounts[0]))
    return Picture(figure)


def _ticks(levels: pl.Series) -> Locator:
    """Use 1-2-5 ticks if the levels span enough of them, else a few round ones."""
    low, high = float(levels.to_numpy().min()), float(levels.to_numpy().max())
    return LogLocator(subs=(1.0, 2.0, 5.0)) if high >= _WIDE * low else MaxNLocator(5)


def _draw_index(axes: Axes, ordered: pl.DataFrame) -> None:
    """Draw the index in the colors of its regimes, over faint bands."""
    days = date2num(ordered["session"].to_numpy())
    points = np.column_stack([days, ordered["index_level"].to_numpy()])
    colors = [_COLORS[name] for name in ordered["regime"]]
    lines = np.stack([points[:-1], points[1:]], axis=1)
    axes.add_collection(LineCollection(list(lines), colors=colors[1:], linewidths=2.2))
    axes.autoscale_view()
    turns = np.flatnonzero(np.diff(ordered["segment"].to_numpy())) + 1
    starts, ends = np.append(0, turns), np.append(turns, len(days) - 1)
    for start, end in zip(starts, ends, strict=True):
        axes.axvspan(float(days[start]), float(days[end]), color=colors[start], alpha=0.18, linewidth=0, zorder=0)


def _key_to_regimes(figure: Figure, ordered: pl.DataFrame, periods_per_year: int) -> None:
    """Write name, share, segments and annual return of each regime, best on top."""
    entries = (
        ordered.group_by("regime")
        .agg(pl.len(), pl.col("segment").n_unique(), pl.col("market_return").mean(), pl.col("slope").mean())
        .sort("slope", descending=True)
    )
    for k, (regime, count, n_segments, mean, _) in enumerate(entries.iter_rows()):
        top = 0.84 - 0.17 * k
        figure.text(
            0.77, top, f"■ {readable(regime)}", color=theme.ink(_COLORS[regime]), fontsize=theme.TEXT, fontweight="bold"
        )
        yearly = f"mean {periods_per_year * mean:+.0%} per year"
        text = f"{count / len(ordered):.0%} of sessions\n{n_segments} segments\n{yearly}"
        figure.text(0.785, top - 0.015, text, fontsize=theme.TEXT, color=theme.GREY, va="top", linespacing=1.25)


def _accounts(evaluation: pl.DataFrame) -> list[str]:
    """Select the ensemble (else the first policy), its anchor, 1/N and the best baseline, as far as they fit."""
    learned = evaluation.filter(pl.col("kind") != "baseline").sort("kind", maintain_order=True)[:1]
    baselines = evaluation.filter(pl.col("kind") == "baseline")["policy"].unique(maintain_order=True).to_list()
    wanted = [*learned["anchor"], "equal_weight", *learned["best_baseline"], *baselines]
    chosen = dict.fromkeys([*learned["policy"], *(name for name in wanted if name in baselines)])
    return list(chosen)[: len(_BAR_COLORS)]


_Bars = tuple[NDArray[np.float64], float, str]  # positions, width, color


def _draw_bars(ratios: Axes, growth: Axes, rows: pl.DataFrame, bars: _Bars) -> None:
    places, width, color = bars
    values = {name: rows[name].cast(pl.Float64).to_numpy() for name in ("sharpe", "sharpe_low", "sharpe_high", "cagr")}
    ratios.bar(places, values["sharpe"], 0.92 * width, color=color)
    ratios.vlines(places, values["sharpe_low"], values["sharpe_high"], color="black", linewidth=1.6)
    growth.bar(places, values["cagr"], 0.92 * width, color=color)


def _finish_bars(ratios: Axes, growth: Axes, rows: pl.DataFrame) -> None:
    names = [
        f"{'all sessions' if name == ALL else readable(name)}\n{share:.0%} of time"
        for name, share in rows.select("regime", "share").iter_rows()
    ]
    for axes in (ratios, growth):
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_xticks(np.arange(len(names)), names)
    ratios.tick_params(labelbottom=False)
    ratios.set_ylabel("Sharpe ratio, net\n(bars: 95 % interval)")
    growth.set_ylabel("growth per year")
    growth.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
