"""Interactive figures of series, for notebooks."""

from collections.abc import Iterable, Sequence
from datetime import date
from itertools import cycle
from typing import Any

import polars as pl
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from nvtrader_pipelines.figures import theme

Curve = tuple[str, Sequence[date], Sequence[float | None], Sequence[float | None]]  # name, sessions, equity, drawdown
_COLORS = (theme.BLUE, *(color for color, _ in theme.LINE_STYLES))


def plot_equity(curves: Iterable[Curve], title: str) -> Figure:
    """Plot equity on a log scale, and drawdown below zero."""
    figure = make_subplots(rows=2, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.04)
    for (name, sessions, equity, drawdown), color in zip(curves, cycle(_COLORS), strict=False):
        line: dict[str, Any] = {"x": sessions, "name": name, "legendgroup": name, "mode": "lines", "line_color": color}
        figure.add_scatter(y=equity, row=1, col=1, **line)
        figure.add_scatter(y=[value and -value for value in drawdown], row=2, col=1, showlegend=False, **line)
    figure.update_yaxes(type="log", title="equity after costs", row=1, col=1)
    figure.update_yaxes(tickformat=".1%", title="drawdown", row=2, col=1)
    return figure.update_layout(title=title, template="plotly_white")


def plot_search(trials: pl.DataFrame, base: float | None, title: str) -> Figure:
    """Plot columns of trials by number: Sharpe ratio, the best so far and the luck bar; and the base."""
    figure = Figure(layout={"title": title, "template": "plotly_white", "xaxis_title": "trial"})
    figure.update_yaxes(title="Sharpe ratio on validation, net of costs")
    styles: dict[str, Any] = {"luck_sharpe": {"line_dash": "dash"}, "best_sharpe": {}, "sharpe": {"mode": "markers"}}
    for (name, style), color in zip(styles.items(), (theme.VERMILION, theme.BLUE, theme.SKY), strict=True):
        figure.add_scatter(x=trials["trial"], y=trials[name], name=name, line_shape="hv", marker_color=color, **style)
    return figure.add_hline(base, annotation_text="base") if base is not None else figure
