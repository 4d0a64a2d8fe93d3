"""Figure of guards: returns of slices of the tests with them and without."""

from collections.abc import Sequence

import numpy as np
from matplotlib.dates import date2num
from matplotlib.ticker import PercentFormatter

from nvtrader_pipelines.evaluation.guard_comparison import GuardSlice
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel, set_date_ticks

_LEFT, _RIGHT = 0.085, 0.97


def guard_slices_figure(slices: Sequence[GuardSlice], title: str, note: str | None = None) -> Picture:
    """Draw the net return of each slice at its start, guarded and unguarded, and their difference.

    A slice in which a guard fired that changes weights is marked below its return.
    """
    figure = new_figure(title, note)
    returns = panel(figure, _LEFT, 0.46, _RIGHT, 0.86)
    differences = panel(figure, _LEFT, 0.15, _RIGHT, 0.42)
    days = date2num([window.first_session for window in slices])
    guarded, unguarded = (
        np.array([getattr(window, name) for window in slices]) for name in ("guarded_return", "unguarded_return")
    )
    fired = days[[window.telemetry.has_fired for window in slices]]
    returns.plot(days, unguarded, color=theme.GREY, linestyle="--", linewidth=1.5, label="unguarded")
    returns.plot(days, guarded, color=theme.BLUE, linewidth=1.8, label="guarded")
    height = np.full(len(fired), 0.03)  # of the axes
    returns.plot(
        fired,
        height,
        "^",
        color=theme.VERMILION,
        markersize=6,
        label="a guard fired",
        transform=returns.get_xaxis_transform(),
    )
    returns.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False, fontsize=theme.TEXT)
    differences.bar(days, guarded - unguarded, width=0.7 * float(np.diff(days).min()), color=theme.SKY)
    for axes, name in ((returns, "net return"), (differences, "difference")):
        axes.axhline(0.0, color="black", linewidth=0.8, zorder=1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.margins(y=0.12)
        axes.set_ylabel(name)
        axes.set_xlim(days[0] - np.diff(days).min(), days[-1] + np.diff(days).min())
        set_date_ticks(axes)
    returns.tick_params(labelbottom=False)
    return Picture(figure)
