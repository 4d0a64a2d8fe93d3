"""Figure of several accounts on the sessions they share."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nvtrader_pipelines.evaluation.rolling import ROLLING_SESSIONS
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel, readable, set_date_ticks
from nvtrader_pipelines.figures.equity import finish_curves

_STYLES = ((theme.BLUE, "-"), *theme.LINE_STYLES)
_LEFT, _RIGHT = 0.115, 0.765


def comparison_figure(curves: pl.DataFrame, title: str, note: str | None = None) -> Picture:
    """Draw equity (log scale), drawdown and rolling Sharpe ratio; the first account is thick.

    The curves have account, session, equity, drawdown (positive) and sharpe (null before a window is full), with the
    same sessions for every account.
    """
    figure = new_figure(title, note)
    wealth = panel(figure, _LEFT, 0.56, _RIGHT, 0.88)
    losses = panel(figure, _LEFT, 0.36, _RIGHT, 0.525)
    ratios = panel(figure, _LEFT, 0.12, _RIGHT, 0.325)
    accounts = curves.partition_by("account", maintain_order=True)
    labels = [
        _draw((wealth, losses, ratios), rows, _STYLES[i % len(_STYLES)], is_first=i == 0)
        for i, rows in enumerate(accounts)
    ]
    finish_curves(wealth, losses)
    losses.tick_params(labelbottom=False)
    _finish_ratios(figure, ratios, wealth, is_empty=curves["sharpe"].null_count() == len(curves))
    label_ends(wealth, labels)
    return Picture(figure)


def _draw(panels: tuple[Axes, Axes, Axes], rows: pl.DataFrame, style: tuple[str, str], *, is_first: bool) -> EndLabel:
    """Draw an account's lines, those of the first above the others, and return its label."""
    color, dashes = style
    days = date2num(rows["session"].to_numpy())
    for axes, values in zip(panels, (rows["equity"], -rows["drawdown"], rows["sharpe"]), strict=True):
        width = 1.2 if axes is not panels[0] else 3.0 if is_first else 1.8
        axes.plot(days, values, color=color, linestyle=dashes, linewidth=width, zorder=3 if is_first else 2)
    last = float(rows["equity"][-1])
    return EndLabel(last, f"{readable(rows['account'][0], 18)}  {last:.3g}x", color, bold=is_first)


def _finish_ratios(figure: Figure, ratios: Axes, wealth: Axes, *, is_empty: bool) -> None:
    ratios.set_xlim(wealth.get_xlim())
    set_date_ticks(ratios)
    ratios.set_ylabel("rolling\nSharpe ratio")
    ratios.yaxis.set_major_locator(MaxNLocator(4))
    figure.text(
        0.78,
        0.22,
        f"of the last {ROLLING_SESSIONS} sessions,\nper year",
        fontsize=theme.TEXT,
        color=theme.GREY,
        va="center",
    )
    if not is_empty:
        ratios.axhline(0.0, color="black", linewidth=0.8)
    else:
        ratios.set_yticks([])
        words = f"fewer than {ROLLING_SESSIONS} shared sessions"
        ratios.text(0.5, 0.5, words, transform=ratios.transAxes, ha="center", fontsize=theme.TEXT, color=theme.GREY)
