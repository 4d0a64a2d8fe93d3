"""Figure of equity and drawdown against the baselines."""

from datetime import date

import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel, readable, set_date_ticks

_NARROW = 3.0  # ratio of highest to lowest equity below which 1-2-5 ticks are too few


def equity_figure(curves: pl.DataFrame, title: str, report_from: date | None, note: str | None = None) -> Picture:
    """Draw net equity (log scale) and drawdown: ensemble thick, seeds or paths thin, baselines colored.

    The curves have policy, kind, session, equity and drawdown (positive), one row per account and session. The period
    from `report_from` is shaded.
    """
    figure = new_figure(title, note)
    wealth = panel(figure, 0.115, 0.40, 0.765, 0.88)
    losses = panel(figure, 0.115, 0.13, 0.765, 0.35)
    labels = [
        _draw(wealth, losses, rows, style)
        for rows, style in _with_styles([frame for _, frame in curves.group_by("policy", maintain_order=True)])
    ]
    _shade(wealth, losses, curves, report_from)
    finish_curves(wealth, losses)
    label_ends(wealth, [label for label in labels if label])
    _key_to_seeds(figure, curves)
    return Picture(figure)


_Style = tuple[str, str, float]  # color, dashes, width


def _with_styles(accounts: list[pl.DataFrame]) -> list[tuple[pl.DataFrame, _Style]]:
    """Assign styles to accounts, the most important drawn last."""
    members = [rows for rows in accounts if rows["kind"][0] == "policy"]
    baselines = [rows for rows in accounts if rows["kind"][0] == "baseline"]
    ensembles = [rows for rows in accounts if rows["kind"][0] == "ensemble"]
    colors = [(*theme.LINE_STYLES[i % len(theme.LINE_STYLES)], 1.8) for i in range(len(baselines))]
    return [
        *((rows, (theme.SKY, "-", 0.8)) for rows in members),
        *zip(baselines, colors, strict=True),
        *((rows, (theme.BLUE, "-", 3.0)) for rows in ensembles),
    ]


def _draw(wealth: Axes, losses: Axes, rows: pl.DataFrame, style: _Style) -> EndLabel | None:
    """Draw an account's lines and return its label; seeds have an equity line only."""
    color, dashes, width = style
    ordered = rows.sort("session")
    sessions = date2num(ordered["session"].to_numpy())
    wealth.plot(sessions, ordered["equity"], color=color, linestyle=dashes, linewidth=width)
    kind = ordered["kind"][0]
    if kind == "policy":
        return None
    losses.plot(sessions, -ordered["drawdown"], color=color, linestyle=dashes, linewidth=0.5 * width)
    bold = kind == "ensemble"
    if bold:
        losses.fill_between(sessions, -ordered["drawdown"], color=color, alpha=0.25, linewidth=0)
    last = float(ordered["equity"][-1])
    return EndLabel(last, f"{readable(ordered['policy'][0])}  {last:.3g}x", color, bold)


def _shade(wealth: Axes, losses: Axes, curves: pl.DataFrame, report_from: date | None) -> None:
    """Shade the reported period, if any."""
    sessions = curves["session"]
    first, last = sessions.min(), sessions.max()
    if report_from is None or not isinstance(first, date) or not isinstance(last, date) or report_from > last:
        return
    start, end = float(date2num(max(report_from, first))), float(date2num(last))
    for axes in (wealth, losses):
        axes.axvspan(start, end, color=theme.LIGHT_GREY, alpha=0.45, zorder=0, linewidth=0)
    wealth.annotate(
        f"reported period, from {report_from.year}",
        xy=(start, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(6, -6),
        textcoords="offset points",
        va="top",
        fontsize=theme.TEXT,
    )


def finish_curves(wealth: Axes, losses: Axes) -> None:
    """Set scales, ticks and labels of equity above drawdown, once both are drawn."""
    finish_equity(wealth)
    wealth.tick_params(labelbottom=False)
    set_date_ticks(losses)
    losses.set_xlim(wealth.get_xlim())
    losses.set_ylabel("drawdown")
    losses.set_ylim(top=0.0)
    losses.yaxis.set_major_locator(MaxNLocator(4))
    losses.yaxis.set_major_formatter(PercentFormatter(1.0))


def finish_equity(wealth: Axes) -> None:
    """Set the logarithmic scale, ticks and label of equity over time, once it is drawn."""
    wealth.set_yscale("log")
    wealth.set_ylabel("equity after costs\n(log scale)")
    low, high = wealth.get_ylim()
    wide = high / low >= _NARROW
    wealth.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if wide else MaxNLocator(6, steps=[1, 2, 5, 10]))
    wealth.yaxis.set_minor_locator(NullLocator())
    wealth.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    set_date_ticks(wealth)


def _key_to_seeds(figure: Figure, curves: pl.DataFrame) -> None:
    members = curves.filter(pl.col("kind") == "policy")["policy"].unique()
    if len(members):
        unit = "path" if members.str.contains("/path-").all() else "seed"
        text = f"thin lines: one {unit} each" if len(members) > 1 else f"thin line: one {unit}"
        figure.text(0.78, 0.37, text, color=theme.ink(theme.SKY), fontsize=theme.TEXT, va="center")
