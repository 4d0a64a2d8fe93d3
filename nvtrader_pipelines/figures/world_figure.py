"""Figure of experiments in worlds: differences to the references, with intervals over the seeds."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel, readable

_TOP, _ROW, _AXIS, _BOTTOM = 0.8, 0.7, 1.0, 0.6  # inches: title, an experiment, an axis with its label, note
_NOTE = (
    "Total reward of a test's mean episode less that of the world's reference. Bars: 95 % intervals of the mean over "
    "the seeds, blue above 0, red below; small dots: seeds. With one seed there is no interval."
)


def world_figure(results: pl.DataFrame) -> Picture:
    """Draw the mean difference to the reference, its interval and the seeds per experiment; a panel per world.

    Args:
        results: rows of `evaluation.world_results` of one run per experiment; without rows the figure says so.
    """
    title = "Experiments in worlds against their references"
    if results.is_empty():
        figure = new_figure(title, None)
        figure.text(0.5, 0.5, "no experiment has results yet", fontsize=theme.TEXT, color=theme.GREY, ha="center")
        return Picture(figure)
    worlds = results.sort("experiment").partition_by("world", maintain_order=True)
    rows_high = [_ROW * rows["experiment"].n_unique() for rows in worlds]
    height = _TOP + sum(rows_high) + _AXIS * len(worlds) + _BOTTOM
    figure, top = new_figure(title, _NOTE, height), height - _TOP
    for rows, high in zip(worlds, rows_high, strict=True):
        _draw(panel(figure, 0.22, (top - high) / height, 0.88, top / height), rows)
        top -= high + _AXIS
    return Picture(figure)


def _draw(axes: Axes, rows: pl.DataFrame) -> None:
    axes.axvline(0.0, color=theme.BLACK, linewidth=1.5)
    means = rows.filter(pl.col("seed").is_null())
    for place, row in enumerate(means.iter_rows(named=True)):
        low, high = row["difference_low"], row["difference_high"]
        color = theme.GREY
        if low is not None:
            color = theme.BLUE if low > 0.0 else theme.VERMILION if high < 0.0 else theme.GREY
            axes.plot([low, high], [place, place], color=color, linewidth=5, alpha=0.4)
        axes.plot(row["difference"], place, "o", color=color, markersize=11)
        seeds = rows.filter(pl.col("seed").is_not_null(), experiment=row["experiment"])["difference"]
        axes.plot(seeds, [place + 0.27] * len(seeds), "o", color=theme.BLACK, markersize=4.5, alpha=0.6)
        axes.annotate(
            f"{row['difference']:+.3g}",
            (1.02, place),
            xycoords=axes.get_yaxis_transform(),
            fontsize=theme.TEXT,
            va="center",
            annotation_clip=False,
        )
    names = [f"{readable(name, 21)}\n{readable(agent, 21)}" for name, agent in means["experiment", "agent"].rows()]
    axes.set_yticks(range(len(means)), names)
    axes.set_ylim(len(means) - 0.5, -0.5)
    axes.margins(x=0.05)
    axes.autoscale_view(scaley=False)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=theme.LIGHT_GREY, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.xaxis.get_offset_text().set_fontsize(theme.TEXT)  # a power of ten
    axes.set_xlabel(f"{means['world'][0]}: mean reward less that of {means['reference'][0]}")
