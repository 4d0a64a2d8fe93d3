"""PRUDEX-Compass in extreme markets: total return and Sharpe ratio against 1/N."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nvtrader_pipelines.evaluation.prudex.measures import EXTREME_MARKETS
from nvtrader_pipelines.evaluation.prudex.record import REFERENCE
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel
from nvtrader_pipelines.figures.prudex_palette import Style, styles, with_hidden

_NUMBERS = {"total_return": "total return", "sharpe": "Sharpe ratio"}


def extremes_figure(table: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw PRUDEX's total return and Sharpe ratio in extreme markets within the test windows."""
    figure = new_figure("Extreme markets, net of costs, against 1/N", with_hidden(table, note))
    rows = table.filter(pl.col("measure") == "extreme_market", pl.col("value").is_not_null())
    covered = [market for market in EXTREME_MARKETS if rows["statistic"].str.ends_with(f":{market.name}").any()]
    drawn = [style for style in styles(table) if style.policy in set(rows["policy"])]
    if not covered:
        figure.text(0.5, 0.5, "no extreme market lies within the test windows", fontsize=theme.TEXT, ha="center")
    panels = [(market, number) for market in covered for number in _NUMBERS]
    for i, (market, number) in enumerate(panels):
        left = 0.19 + i * 0.79 / len(panels)
        axes = panel(figure, left, 0.16, left + 0.79 / len(panels) - 0.032, 0.79)
        _bars(axes, rows.filter(pl.col("statistic") == f"{number}:{market.name}"), drawn)
        axes.tick_params(labelleft=i == 0)
        axes.set_title(_NUMBERS[number], fontsize=theme.TEXT, loc="left")
        if number == "total_return":
            heading = f"{market.name.replace('_', ' ')}\n{market.first:%b %Y} to {market.last:%b %Y}"
            figure.text(left, 0.885, heading, fontsize=theme.TEXT, fontweight="bold", va="center")
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return Picture(figure)


def _bars(axes: Axes, rows: pl.DataFrame, drawn: list[Style]) -> None:
    """Draw a bar per policy, a dash where there is no value, and a line at 1/N."""
    found = {(policy, kind): value for policy, kind, value in rows.select("policy", "kind", "value").iter_rows()}
    places = range(len(drawn), 0, -1)
    values = [found.get((style.policy, style.kind)) for style in drawn]
    bars = [0.0 if value is None else value for value in values]
    axes.barh(places, bars, 0.7, color=[style.shade for style in drawn], edgecolor=theme.GREY, linewidth=0.6)
    for place, value in zip(places, values, strict=True):
        if value is None:
            axes.text(0.0, place, " \u2013", fontsize=theme.TEXT, va="center")
    axes.set_yticks(list(places), [style.label for style in drawn], fontsize=theme.TEXT - 1)
    axes.axvline(0.0, color=theme.GREY, linewidth=0.8)
    market = next((value for style, value in zip(drawn, values, strict=True) if style.policy == REFERENCE), None)
    if market is not None:
        axes.axvline(market, color=theme.BLACK, linestyle="--", linewidth=1.6)
    axes.xaxis.set_major_locator(MaxNLocator(2))
    axes.margins(x=0.06)
    axes.grid(visible=True, axis="x", color=theme.LIGHT_GREY)
    axes.grid(visible=False, axis="y")
