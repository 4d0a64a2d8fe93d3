"""Figure of a stress test: a map of accounts by scenarios."""

import textwrap
from typing import Literal

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.stress.verdict import FIVE_PERCENT, VALUE
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, draw_cells, new_figure, pivot_cells, readable

Measure = Literal["total_return", "max_drawdown"]
MEANING: dict[Measure, str] = {
    "total_return": "total return in percent, net of costs",
    "max_drawdown": "largest drawdown in percent",
}
_DARK = 0.7  # share of the strongest color from which text is white
_LINE = 10  # letters per line of a scenario's name
_ORDER = {"ensemble": 0, "policy": 1, "baseline": 2}


def stress_figures(table: pl.DataFrame, experiment: str, note: str | None = None) -> dict[str, Picture]:
    """Draw a figure per measure, by measure name."""
    return {measure: stress_figure(table, f"{experiment} under stress", note, measure) for measure in MEANING}


def stress_figure(
    table: pl.DataFrame, title: str, note: str | None = None, measure: Measure = "total_return"
) -> Picture:
    """Draw a measure of `STRESS`, accounts by scenarios; of several markets the worst 5 %."""
    shown = table.filter(pl.col("statistic").is_in([VALUE, FIVE_PERCENT]))
    kinds = pl.col("kind").replace_strict(_ORDER, default=len(_ORDER))
    accounts = shown.select("policy", "kind").unique(maintain_order=True).sort(kinds, maintain_order=True)
    scenarios = shown.select("scenario", "statistic").unique("scenario", maintain_order=True)
    heads = scenarios["scenario"].to_list()
    cells = pivot_cells(shown, ("policy", "scenario", measure), accounts["policy"].to_list(), heads)
    figure = new_figure(f"{title}: {MEANING[measure]}", note)
    axes = figure.add_axes((0.16, 0.13, 0.82, 0.62))
    sign = -1.0 if measure == "max_drawdown" else 1.0
    shade = sign * cells / max(float(np.nanmax(np.abs(cells), initial=0.0)), 1e-9)
    draw_cells(axes, cells, shade, dark=_DARK, grid=("white", 2.0))
    axes.set_xticks(
        range(len(scenarios)), [_scenario(*row) for row in scenarios.rows()], fontsize=theme.TEXT - 4, linespacing=1.1
    )
    axes.set_yticks(range(len(accounts)), [_account(*row) for row in accounts.rows()], fontsize=theme.TEXT)
    for label, kind in zip(axes.get_yticklabels(), accounts["kind"], strict=True):
        label.set_fontweight("bold" if kind == "ensemble" else "normal")
    return Picture(figure)


def _scenario(name: str, statistic: str) -> str:
    words = name.replace("_percent", "_%").replace("_", " ") + (" 5 % worst" if statistic == FIVE_PERCENT else "")
    return textwrap.fill(words, _LINE, break_long_words=False, break_on_hyphens=False)


def _account(name: str, kind: str) -> str:
    """Format an account's name for a row; of seeds, only the seed."""
    return readable(name.rpartition("/")[2] if kind == "policy" else name)
