"""Figure of an account's weights over time."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel, select_account
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.pipeline.stage import ROUNDING

_COLORS = (theme.BLUE, theme.ORANGE, theme.GREEN, theme.VERMILION, theme.SKY, theme.PURPLE, theme.YELLOW)


def weights_figure(action_logs: pl.DataFrame, title: str, note: str | None = None) -> Picture:
    """Draw executed weights as stacked areas: the seven largest on average, the others, cash; debt is below zero.

    The logs have session, symbols (cash last) and executed_weights; with several accounts (policy, kind), the ensemble
    is drawn.

    Raises:
        ValueError: if there is no row, no single account to draw, or the symbols change.
    """
    mine = select_account(action_logs)
    symbols = mine["symbols"].unique()
    if len(symbols) != 1:
        raise ValueError(f"weights_figure draws one portfolio of one set of names, but found {len(symbols)} sets")
    sessions, weights = _steps(mine.sort("session"))
    bands = _bands(symbols[0].to_list(), weights)
    figure = new_figure(title, note)
    axes = panel(figure, 0.095, 0.13, 0.82, 0.88)
    colors = [color for _, color, _ in bands]
    heights = np.array([height for _, _, height in bands])
    above, below = heights.clip(0.0, None), heights.clip(None, 0.0)
    axes.stackplot(sessions, above, colors=colors, step="post", linewidth=0)
    _finish(axes)
    if (below < -ROUNDING).any():
        axes.stackplot(sessions, below, colors=colors, step="post", linewidth=0)
        axes.set_ylim(below.sum(axis=0).min(), above.sum(axis=0).max())
    label_ends(axes, _labels(bands))
    figure.text(0.836, 0.93, "mean weight", fontsize=theme.TEXT, color=theme.GREY)
    return Picture(figure)


def _steps(ordered: pl.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Days and weights (n+1, N+1); the last weights are held as long as those before, or they would not show."""
    days = np.asarray(date2num(ordered["session"].to_numpy()), dtype=np.float64)
    held = days[-1] - days[-2] if len(days) > 1 else 1.0
    weights = np.array(ordered["executed_weights"].to_list())
    return np.append(days, days[-1] + held), np.vstack([weights, weights[-1:]])


_Band = tuple[str, str, NDArray[np.float64]]  # name, color, weights over time


def _bands(names: list[str], weights: NDArray[np.float64]) -> list[_Band]:
    """Bands from bottom to top: the largest names, the sum of the others, cash."""
    order = np.argsort(-weights[:, :-1].mean(axis=0), kind="stable")
    largest, others = order[: len(_COLORS)], order[len(_COLORS) :]
    bands = [(names[i], color, weights[:, i]) for i, color in zip(largest, _COLORS, strict=False)]
    if len(others):
        bands.append((f"{len(others)} others", theme.OTHERS_GREY, weights[:, others].sum(axis=1)))
    return [*bands, (CASH, theme.LIGHT_GREY, weights[:, -1])]


def _labels(bands: list[_Band]) -> list[EndLabel]:
    """A label at the middle of each band's last height."""
    last = np.array([height[-1] for _, _, height in bands])
    ends = np.where(last < 0.0, last.clip(None, 0.0).cumsum(), last.clip(0.0, None).cumsum())
    return [
        EndLabel(end - height[-1] / 2.0, f"{name}  {height[:-1].mean():.1%}", color)
        for (name, color, height), end in zip(bands, ends.tolist(), strict=True)
    ]


def _finish(axes: Axes) -> None:
    axes.set_ylim(0.0, 1.0)
    axes.grid(visible=False)
    axes.set_ylabel("share of equity after the trade")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis_date()
