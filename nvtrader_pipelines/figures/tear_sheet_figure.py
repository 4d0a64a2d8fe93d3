"""Figure of a tear sheet."""

import calendar
from collections.abc import Callable

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nvtrader_pipelines.evaluation.rolling import ROLLING_SESSIONS
from nvtrader_pipelines.evaluation.tear_sheet import TearSheet
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import (
    EndLabel,
    Picture,
    draw_cells,
    label_ends,
    new_figure,
    panel,
    pivot_cells,
    set_date_ticks,
)
from nvtrader_pipelines.figures.equity import finish_equity

MONTHS = tuple(calendar.month_abbr)[1:]
STRONG_MONTH, STRONG_YEAR = 0.10, 0.40  # returns from which a cell has the full color
_DARK = 0.7  # share of the strongest color from which text is white
_LEFT, _RIGHT = 0.115, 0.80
_TOP, _BOTTOM = 0.75, 1.3  # inches for title and note
_EQUITY, _ROLLING, _GAP, _HEAD, _ROW = 2.6, 1.25, 0.35, 0.75, 0.33  # inches
_PANELS: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("sharpe", "rolling\nSharpe ratio", theme.BLUE, "{:.2f}".format),
    ("volatility", "rolling\nvolatility", theme.VERMILION, "{:.1%}".format),
    ("exposure", "exposure", theme.GREEN, "{:.0%}".format),
    ("turnover", "rolling\nturnover", theme.ORANGE, "{:.1f}".format),
)
_IN_PERCENT = {"volatility", "exposure"}
_DRAWDOWN_COLUMNS = (
    ("", 0.03),
    ("depth", 0.16),
    ("start", 0.34),
    ("trough", 0.54),
    ("recovery", 0.76),
    ("sessions", 0.90),
)


def tear_sheet_figure(sheet: TearSheet, title: str, note: str | None = None) -> Picture:
    """Draw equity, rolling figures, monthly returns and the worst drawdowns on one page."""
    n_years = len(sheet.yearly)
    tables = 2 * _HEAD + _ROW * (n_years + max(len(sheet.drawdowns), 1))
    height = _TOP + _EQUITY + (_ROLLING + _GAP) * len(_PANELS) + _GAP + tables + _BOTTOM
    figure = new_figure(title, note, height)
    top = height - _TOP
    wealth = panel(figure, _LEFT, (top - _EQUITY) / height, _RIGHT, top / height)
    _draw_equity(wealth, sheet)
    top = _draw_rolling(figure, sheet.by_session, top - _EQUITY - _GAP, height)
    wealth.set_xlim(figure.axes[1].get_xlim())
    top -= _GAP + _HEAD
    bottom = top - _ROW * n_years
    _draw_months(figure, figure.add_axes((_LEFT, bottom / height, 0.97 - _LEFT, (top - bottom) / height)), sheet)
    _draw_drawdowns(figure, sheet.drawdowns, bottom - _GAP, height)
    return Picture(figure)


def _draw_rolling(figure: Figure, rolling: pl.DataFrame, top: float, height: float) -> float:
    """Draw a panel per figure below `top` inches, and return where they end."""
    days = date2num(rolling["session"].to_numpy())
    for i, (name, words, color, form) in enumerate(_PANELS):
        axes = panel(figure, _LEFT, (top - _ROLLING) / height, _RIGHT, top / height)
        axes.plot(days, rolling[name], color=color, linewidth=1.4)
        axes.set_ylabel(words)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0) if name in _IN_PERCENT else "{x:g}")
        axes.margins(y=0.25)  # a label of two lines at the lowest value stays above the dates
        axes.set_xlim(days[0] - 1.0, days[-1] + 1.0)
        set_date_ticks(axes)
        axes.tick_params(labelbottom=i == len(_PANELS) - 1)
        known = rolling[name].drop_nulls()
        if len(known) and name == "sharpe":
            axes.axhline(0.0, color="black", linewidth=0.8)
        if len(known):
            median, last = float(np.median(known.to_numpy())), float(known[-1])
            label_ends(axes, [EndLabel(last, f"last {form(last)}\nmedian {form(median)}", color)])
        else:
            missing = f"fewer than {ROLLING_SESSIONS} sessions"
            axes.set_yticks([])
            axes.text(0.5, 0.5, missing, transform=axes.transAxes, ha="center", fontsize=theme.TEXT, color=theme.GREY)
        top -= _ROLLING + _GAP
    return top


def _draw_equity(axes: Axes, sheet: TearSheet) -> None:
    """Draw equity with the worst drawdowns shaded and numbered."""
    rows = sheet.by_session
    days = date2num(rows["session"].to_numpy())
    axes.plot(days, rows["equity"], color=theme.BLUE, linewidth=2.0)
    finish_equity(axes)
    axes.tick_params(labelbottom=False)
    for i, (start, recovery) in enumerate(sheet.drawdowns.select("start", "recovery").iter_rows(), 1):
        left, right = (float(date2num(day)) for day in (start, recovery or rows["session"][-1]))
        axes.axvspan(left, right, color=theme.LIGHT_GREY, alpha=0.8, zorder=0, linewidth=0)
        axes.annotate(
            str(i),
            (0.5 * (left + right), 0.97),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize=theme.TEXT,
        )
    last = float(rows["equity"][-1])
    label_ends(axes, [EndLabel(last, f"{last:.3g}x", theme.BLUE, bold=True)])


def _draw_months(figure: Figure, axes: Axes, sheet: TearSheet) -> None:
    """Draw the returns of months and years in percent."""
    years = sheet.yearly["year"].to_list()
    months = pivot_cells(sheet.monthly, ("year", "month", "return"), years, range(1, 13))
    cells = np.column_stack([months, sheet.yearly["return"].to_numpy()])
    scale = np.array([STRONG_MONTH] * len(MONTHS) + [STRONG_YEAR])
    draw_cells(axes, cells, np.clip(cells / scale, -1.0, 1.0), dark=_DARK, grid=("white", 2.0), unknown="")
    axes.set_xticks(range(len(MONTHS) + 1), [*MONTHS, "year"], fontsize=theme.TEXT)
    axes.set_yticks(range(len(years)), [str(year) for year in years], fontsize=theme.TEXT)
    axes.axvline(len(MONTHS) - 0.5, color="black", linewidth=1.2)
    top = axes.get_position().y1 + 0.5 / figure.get_figheight()
    _head(figure, "Returns by month and year, in percent, net of costs", top)


def _draw_drawdowns(figure: Figure, drawdowns: pl.DataFrame, top: float, height: float) -> None:
    """Write the table of the worst drawdowns below `top` inches."""
    _head(figure, "Worst drawdowns, numbered as shaded above", (top - 0.1) / height)
    rows = [
        (str(i), f"{row['depth']:.1%}", str(row["start"]), str(row["trough"]), str(row["recovery"] or "not yet"),
         f"{row['n_sessions']:,}")
        for i, row in enumerate(drawdowns.iter_rows(named=True), 1)
    ]  # fmt: skip
    heads = [head for head, _ in _DRAWDOWN_COLUMNS]
    for k, cells in enumerate([heads, *(rows or [("", "none", "", "", "", "")])]):
        for (_, left), cell in zip(_DRAWDOWN_COLUMNS, cells, strict=True):
            x = _LEFT + left * (0.97 - _LEFT)
            y = (top - 0.45 - _ROW * k) / height
            figure.text(
                x, y, cell, fontsize=theme.TEXT, color=theme.GREY if k == 0 else "black", ha="right", va="center"
            )


def _head(figure: Figure, words: str, height: float) -> None:
    figure.text(_LEFT, height, words, fontsize=theme.TEXT + 2, fontweight="bold", va="center")
