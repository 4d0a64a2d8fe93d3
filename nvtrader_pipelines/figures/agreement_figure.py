"""Figure of the agreement of people and market: over time by kind of decision, and by kind and reason."""

import matplotlib.dates as mdates
import polars as pl
from matplotlib.axes import Axes

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel, readable, set_date_ticks
from nvtrader_pipelines.preferences.agreement import agreement, counted_outcomes

COLORS = {"approved": theme.GREEN, "edited": theme.BLUE, "overridden": theme.ORANGE, "rejected": theme.PURPLE}
_MARGIN_DAYS = 1
_NOTE = (
    "Net return over five sessions of the chosen less that of the other weights: the holdings for an approval, else "
    "the proposal. Answers without judgement, and those whose outcome was known, do not count. Bars: 95 % intervals "
    "which allow for outcomes that overlap."
)


def agreement_figure(outcomes: pl.DataFrame) -> Picture:
    """Draw the mean so far of chosen less other returns by kind of decision, and means with intervals.

    Args:
        outcomes: session, decision, reason, excess_pct and weight; without a row that counts the figure says so.
    """
    figure = new_figure("People and market: return of the chosen less the other weights", _NOTE)
    counted = counted_outcomes(outcomes)
    if counted.is_empty():
        figure.text(
            0.5, 0.5, "no decision that counts has an outcome yet", fontsize=theme.TEXT, color=theme.GREY, ha="center"
        )
        return Picture(figure)
    _draw_means(panel(figure, 0.09, 0.22, 0.39, 0.84), counted)
    _draw_intervals(panel(figure, 0.68, 0.22, 0.88, 0.84), agreement(outcomes).filter(pl.col("by") != "month"))
    return Picture(figure)


def _draw_means(axes: Axes, counted: pl.DataFrame) -> None:
    """Draw the mean so far of each kind of decision over sessions."""
    axes.axhline(0.0, color=theme.BLACK, linewidth=0.8)
    labels = []
    for (kind,), rows in counted.sort("session").group_by("decision", maintain_order=True):
        totals = rows.group_by("session", maintain_order=True).agg(pl.col("excess_pct").sum(), n=pl.len())
        means = totals["excess_pct"].cum_sum() / totals["n"].cum_sum()
        color = COLORS[str(kind)]
        axes.plot(totals["session"].to_numpy(), means.to_numpy(), color=color, linewidth=2.5, marker="o", markersize=5)
        labels.append(EndLabel(means[-1], str(kind), color, bold=True))
    first, last = (mdates.date2num(end) for end in (counted["session"].min(), counted["session"].max()))
    axes.set_xlim(first - _MARGIN_DAYS, last + _MARGIN_DAYS)
    axes.margins(y=0.1)
    set_date_ticks(axes, most=4)
    axes.set_title("over time: mean so far, by kind of decision", fontsize=theme.TEXT, loc="left")
    axes.set_ylabel("chosen less other, %")
    label_ends(axes, labels)


def _draw_intervals(axes: Axes, summary: pl.DataFrame) -> None:
    """Draw the mean of each group with its interval, and how often the choice did better."""
    axes.axvline(0.0, color=theme.BLACK, linewidth=0.8)
    names = []
    for place, row in enumerate(summary.iter_rows(named=True)):
        color = COLORS.get(row["name"], theme.GREY)
        if row["low_pct"] is not None:
            axes.plot([row["low_pct"], row["high_pct"]], [place, place], color=color, linewidth=5, alpha=0.4)
        axes.plot(row["mean_pct"], place, "o", color=color, markersize=11)
        axes.annotate(
            f"{row['n_better']} of {row['n']}",
            (1.03, place),
            xycoords=axes.get_yaxis_transform(),
            fontsize=theme.TEXT,
            va="center",
            annotation_clip=False,
        )
        names.append("all overrides" if row["by"] == "overrides" else readable(row["name"], 20))
    axes.set_yticks(range(len(names)), names)
    for label, name in zip(axes.get_yticklabels(), summary["name"], strict=True):
        label.set_parse_math(False)  # a reason may have dollars
        label.set_color(theme.ink(COLORS.get(name, theme.BLACK)))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=0.05)
    axes.autoscale_view(scaley=False)
    axes.grid(visible=False, axis="y")
    axes.set_title("by decision and reason; right: did better", fontsize=theme.TEXT, loc="left")
    axes.set_xlabel("mean, %")
