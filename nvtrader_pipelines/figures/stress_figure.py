"""Figure of a stress test: a map of accounts by scenarios."""

import textwrap
from typing import Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.stress.verdict import FIVE_PERCENT, VALUE
from nvtrader_pipelines.figures.canvas import BLACK, BLUE, LIGHT_GREY, TEXT, VERMILION, new_figure, png, readable

Measure = Literal["total_return", "max_drawdown"]
MEANING: dict[Measure, str] = {
    "total_return": "total return in percent, net of costs",
    "max_drawdown": "largest drawdown in percent",
}
_LOSS_TO_GAIN = LinearSegmentedColormap.from_list("loss_to_gain", [VERMILION, "#FFFFFF", BLUE])
_DARK = 0.7  # share of the strongest color from which text is white
_LINE = 10  # letters per line of a scenario's name
_ORDER = {"ensemble": 0, "policy": 1, "baseline": 2}


def stress_figures(table: pl.DataFrame, experiment: str, note: str | None = None) -> dict[str, bytes]:
    """Draw a figure per measure, by measure name."""
    return {measure: stress_figure(table, f"{experiment} under stress", note, measure) for measure in MEANING}


def stress_figure(table: pl.DataFrame, title: str, note: str | None = None, measure: Measure = "total_return") -> bytes:
    """Draw a measure in percent, accounts by scenarios; the worst 5 % where a scenario has several markets.

    Args:
        table: rows of `stress_test` of one run.
        title: above the figure; the measure is added.
        note: under the figure.
        measure: column to draw.
    """
    shown = table.filter(pl.col("statistic").is_in([VALUE, FIVE_PERCENT]))
    kinds = pl.col("kind").replace_strict(_ORDER, default=len(_ORDER))
    accounts = shown.select("policy", "kind").unique(maintain_order=True).sort(kinds, maintain_order=True)
    scenarios = shown.select("scenario", "statistic").unique("scenario", maintain_order=True)
    cells = _cells(shown, accounts["policy"], scenarios["scenario"], measure)
    figure = new_figure(f"{title}: {MEANING[measure]}", note)
    axes = figure.add_axes((0.16, 0.13, 0.82, 0.62))
    _draw(axes, cells, sign=-1.0 if measure == "max_drawdown" else 1.0)
    axes.set_xticks(
        range(len(scenarios)), [_scenario(*row) for row in scenarios.rows()], fontsize=TEXT - 4, linespacing=1.1
    )
    axes.set_yticks(range(len(accounts)), [_account(*row) for row in accounts.rows()], fontsize=TEXT)
    for label, kind in zip(axes.get_yticklabels(), accounts["kind"], strict=True):
        label.set_fontweight("bold" if kind == "ensemble" else "normal")
    return png(figure)


def _cells(shown: pl.DataFrame, accounts: pl.Series, scenarios: pl.Series, measure: Measure) -> NDArray[np.float64]:
    """Pivot the measure to (accounts, scenarios); NaN where unknown."""
    rows, columns = ({name: i for i, name in enumerate(names)} for names in (accounts, scenarios))
    cells = np.full((len(rows), len(columns)), np.nan)
    for policy, scenario, value in shown.select("policy", "scenario", measure).rows():
        cells[rows[policy], columns[scenario]] = np.nan if value is None else value
    return cells


def _draw(axes: Axes, cells: NDArray[np.float64], sign: float) -> None:
    """Color cells from loss to gain and write the percent; unknown cells are grey."""
    shade = sign * cells / max(float(np.nanmax(np.abs(cells), initial=0.0)), 1e-9)
    colors = _LOSS_TO_GAIN.with_extremes(bad=LIGHT_GREY)
    axes.imshow(np.ma.masked_invalid(shade), cmap=colors, vmin=-1.0, vmax=1.0, aspect="auto")
    for (row, column), value in np.ndenumerate(cells):
        text = "not\ntested" if np.isnan(value) else f"{round(100.0 * value, 1) + 0.0:.1f}"  # never -0.0
        ink = "white" if abs(shade[row, column]) > _DARK else BLACK
        axes.text(column, row, text, ha="center", va="center", fontsize=TEXT - 1, color=ink)
    axes.set_xticks(np.arange(1, cells.shape[1]) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, cells.shape[0]) - 0.5, minor=True)
    axes.grid(visible=True, which="minor", color="white", linewidth=2.0)
    axes.tick_params(which="both", length=0)
    axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)


def _scenario(name: str, statistic: str) -> str:
    """Format a scenario's name for a column head."""
    words = name.replace("_percent", "_%").replace("_", " ") + (" 5 % worst" if statistic == FIVE_PERCENT else "")
    return textwrap.fill(words, _LINE, break_long_words=False, break_on_hyphens=False)


def _account(name: str, kind: str) -> str:
    """Format an account's name for a row; of seeds, only the seed."""
    return readable(name.rpartition("/")[2] if kind == "policy" else name)
