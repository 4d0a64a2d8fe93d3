"""Diversity in PRUDEX-Compass: embedded actions, and weights by name and year."""

from itertools import cycle

import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.image import AxesImage

from nvtrader_pipelines.evaluation.prudex.record import ENSEMBLE
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel, readable
from nvtrader_pipelines.figures.prudex_palette import experiment_colors, styles, with_hidden

_MARKERS = ("s", "^", "v", "D", "P", "X", "*")
_MAX_NAMES, _MAX_PANELS = 25, 3
_SHADES = LinearSegmentedColormap.from_list("weights", ["#7A4A00", theme.ORANGE, "#FFFFFF", theme.BLUE, "#00253D"])


def plane_figure(plane: pl.DataFrame, table: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw a sample of every policy's embedded actions; large distances have no meaning.

    Args:
        plane: policy, kind, x and y.
        table: rows of PRUDEX.
        note: under the figure.
    """
    figure = new_figure("Actions by t-SNE: neighbors have similar weights", with_hidden(table, note))
    axes = panel(figure, 0.03, 0.10, 0.75, 0.90)
    markers = cycle(_MARKERS)
    for style in reversed(styles(table)):
        mine = plane.filter(pl.col("policy") == style.policy, pl.col("kind") == style.kind)
        marker = "o" if style.kind == ENSEMBLE else next(markers)
        axes.scatter(
            mine["x"], mine["y"], 42, color=style.shade, marker=marker, alpha=0.75, linewidth=0, label=style.label
        )
    axes.set_axis_off()
    axes.margins(0.03)
    handles, labels = axes.get_legend_handles_labels()
    key = {
        "loc": "upper left",
        "bbox_to_anchor": (0.765, 0.89),
        "frameon": False,
        "fontsize": theme.TEXT,
        "markerscale": 1.6,
    }
    figure.legend(handles[::-1], labels[::-1], **key)
    return Picture(figure)


def heat_figure(heat: pl.DataFrame, table: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw the weights of up to three experiments by name and year; white is 1/N, grey is not on record.

    Args:
        heat: policy, kind, source, year, symbol and weight.
        table: rows of PRUDEX.
        note: under the figure, with the number of names beyond the 25 largest.
    """
    colors = dict(list(experiment_colors(table).items())[:_MAX_PANELS])
    ours = heat.filter(pl.col("kind") == ENSEMBLE, pl.col("policy").is_in(list(colors)))
    ours = ours.with_columns(weight=pl.col("weight").abs() * pl.col("symbol").n_unique().over("source", "policy"))
    sizes = (
        ours.group_by("source", "symbol")
        .agg(pl.col("weight").mean())
        .sort("weight", "symbol", descending=[True, False])
    )
    names = sizes.head(_MAX_NAMES).sort("source", "symbol").select("source", "symbol")
    left_out = f"{len(sizes) - len(names)} names with smaller weights left out" if len(sizes) > len(names) else None
    caveats = "; ".join(filter(None, (left_out, with_hidden(table, note))))
    figure = new_figure("Mean weight by name and year, against 1/N", caveats)
    scale = TwoSlopeNorm(1.0, 0.0, max(float(ours["weight"].to_numpy().max(initial=0.0)), 2.0))
    width = 0.80 / max(len(colors), 1)
    image: AxesImage | None = None
    for i, (policy, color) in enumerate(colors.items()):
        axes = panel(figure, 0.075 + i * width, 0.16, 0.075 + (i + 1) * width - 0.015, 0.86)
        image = _cells(axes, ours.filter(pl.col("policy") == policy), names, scale)
        axes.tick_params(labelleft=i == 0)
        axes.set_title(readable(policy, 26), fontsize=theme.TEXT, color=theme.ink(color), fontweight="bold")
    if image is not None:
        bar = figure.colorbar(image, cax=figure.add_axes((0.895, 0.16, 0.015, 0.70)), format="{x:.3g} / N")
        bar.ax.tick_params(labelsize=theme.TEXT)
    return Picture(figure)


def _cells(axes: Axes, rows: pl.DataFrame, names: pl.DataFrame, scale: TwoSlopeNorm) -> AxesImage:
    years = rows["year"].unique().sort().to_list()
    wide = names.join(
        rows.pivot("year", index=["source", "symbol"], values="weight"),
        on=["source", "symbol"],
        how="left",
        maintain_order="left",
    )
    cells = wide.select(str(year) for year in years).to_numpy()
    image = axes.imshow(cells, cmap=_SHADES, norm=scale, aspect="auto", interpolation="nearest")
    axes.set_facecolor(theme.LIGHT_GREY)  # not on record
    several = names["source"].n_unique() > 1
    labels = [f"{symbol} ({readable(source, 8)})" if several else symbol for source, symbol in names.iter_rows()]
    axes.set_yticks(range(len(names)), labels, fontsize=theme.TEXT - (5 if several else 3))
    every = -(-len(years) // 5)
    axes.set_xticks(range(0, len(years), every), [str(year) for year in years[::every]], fontsize=theme.TEXT - 2)
    axes.grid(visible=False)
    return image
