"""Common layout of all figures: size, title, note and line labels."""

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DayLocator
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nvtrader_pipelines.figures import theme

_SIZE_INCHES, _DPI = (13.33, 7.5), 120  # one 16:9 slide of 1600 x 900 pixels
_TITLE, _NOTE = 20, 12  # points
_LABEL_GAP = 0.05  # of an axes that fills the slide
_NOTE_COLUMNS, _NOTE_LINES = 135, 3  # below every panel
_CUT = " … (more in the table)"
_MAX_DATES = 8  # on a horizontal axis
_SIMPLIFY = 0.5  # points at 72 per inch by which an SVG path may deviate; half of the size of exact paths
_PATH = re.compile(rb' d="[^"]*"')
_DIGITS = re.compile(rb"(\.\d)\d+")  # a tenth of a point is enough; all digits would double the file


Cells = NDArray[np.float64]  # of a map, by row and column


@dataclass(frozen=True)
class EndLabel:
    """Label beside the end of a line."""

    y: float  # data coordinate
    text: str
    color: str
    bold: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """Figure that is rendered on demand; equal figures give equal bytes."""

    figure: Figure

    def png(self) -> bytes:
        """Render as PNG, for slides and the Dagster UI."""
        buffer = io.BytesIO()
        # a quarter less time than at the default level, for files a sixth larger
        self.figure.savefig(buffer, format="png", metadata={"Software": None}, pil_kwargs={"compress_level": 1})
        return buffer.getvalue()

    def svg(self) -> bytes:
        """Render as SVG, for pages; text is drawn as shapes, which need no fonts."""
        buffer = io.BytesIO()
        with rc_context({"svg.hashsalt": "nvtrader", "path.simplify_threshold": _SIMPLIFY}):
            self.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        return _PATH.sub(lambda path: _DIGITS.sub(rb"\1", path.group()), buffer.getvalue())


@dataclass(frozen=True, eq=False)
class RenderedPicture:
    """Picture that was rendered before."""

    png_bytes: bytes
    svg_bytes: bytes

    def png(self) -> bytes:
        """Return the PNG."""
        return self.png_bytes

    def svg(self) -> bytes:
        """Return the SVG."""
        return self.svg_bytes


def new_figure(title: str, note: str | None, height: float = _SIZE_INCHES[1]) -> Figure:
    """Create a slide, or a page of `height` inches: title above, note of three lines below."""
    figure = Figure(figsize=(_SIZE_INCHES[0], height), dpi=_DPI, facecolor="white")
    figure.text(0.06, 1.0 - 0.3375 / height, title, fontsize=_TITLE, fontweight="bold", va="center")
    if note:
        wrapped = textwrap.fill(note, _NOTE_COLUMNS, max_lines=_NOTE_LINES, placeholder=_CUT)
        figure.text(0.06, 0.15 / height, wrapped, fontsize=_NOTE, color=theme.GREY, va="bottom")
    return figure


def panel(figure: Figure, left: float, bottom: float, right: float, top: float) -> Axes:
    """Add axes at these figure fractions, without top and right spines."""
    axes = figure.add_axes((left, bottom, right - left, top - bottom))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="y", color=theme.LIGHT_GREY, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=theme.TEXT)
    axes.xaxis.label.set_fontsize(theme.TEXT)
    axes.yaxis.label.set_fontsize(theme.TEXT)
    axes.margins(x=0)
    return axes


def set_date_ticks(axes: Axes, most: int = _MAX_DATES) -> None:
    """Set dates as ticks of the horizontal axis, few enough to stay apart, and none within a day."""
    axes.xaxis_date()
    first, last = axes.get_xlim()
    axes.xaxis.set_major_locator(DayLocator() if last - first < most else AutoDateLocator(minticks=3, maxticks=most))


def label_ends(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Write labels right of the axes at the height of their lines, moved apart where they would touch.

    Call after limits and scale are final.
    """
    if not labels:
        return
    points = axes.transData.transform([(axes.get_xlim()[1], label.y) for label in labels])
    heights = np.clip(axes.transAxes.inverted().transform(points)[:, 1], 0.0, 1.0)
    gap = _LABEL_GAP / axes.get_position().height
    for label, height, placed in zip(labels, heights, spread(heights, gap, 1.0), strict=True):
        axes.annotate(
            label.text,
            xy=(1.0, float(height)),
            xytext=(1.02, float(placed)),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=theme.ink(label.color),
            fontsize=theme.TEXT,
            fontweight="bold" if label.bold else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": label.color, "relpos": (0.0, 0.5), "shrinkA": 1, "shrinkB": 0},
        )


def draw_cells(
    axes: Axes, values: Cells, shade: Cells, *, dark: float, grid: tuple[str, float], unknown: str = "not\ntested"
) -> None:
    """Write values in percent into cells colored by shade, from -1 (loss) to 1 (gain).

    Unknown values are grey. Text is white where the shade is above `dark`; the grid has a color and a width.
    """
    colors = theme.LOSS_TO_GAIN.with_extremes(bad=theme.LIGHT_GREY)
    axes.imshow(np.ma.masked_invalid(shade), cmap=colors, vmin=-1.0, vmax=1.0, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = unknown if np.isnan(value) else f"{round(100.0 * value, 1) + 0.0:.1f}"  # never -0.0
        color = "white" if abs(shade[row, column]) > dark else theme.BLACK
        axes.text(column, row, text, ha="center", va="center", fontsize=theme.TEXT - 1, color=color)
    axes.set_xticks(np.arange(1, values.shape[1]) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, values.shape[0]) - 0.5, minor=True)
    axes.grid(visible=True, which="minor", color=grid[0], linewidth=grid[1])
    axes.tick_params(which="both", length=0)
    axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)


def pivot_cells(
    rows: pl.DataFrame, columns: tuple[str, str, str], names: Sequence[object], heads: Sequence[object]
) -> Cells:
    """Pivot columns (name, head, value) to cells (names, heads); NaN where unknown."""
    at_row, at_column = ({name: i for i, name in enumerate(several)} for several in (names, heads))
    cells = np.full((len(names), len(heads)), np.nan)
    for name, head, value in rows.select(columns).rows():
        cells[at_row[name], at_column[head]] = np.nan if value is None else value
    return cells


def spread(heights: NDArray[np.float64], gap: float, top: float) -> NDArray[np.float64]:
    """Nearest heights (least squares) in the same order, at least `gap` apart and at most `top`."""
    order = np.argsort(heights, kind="stable")
    offsets = gap * np.arange(len(heights))
    groups: list[tuple[float, int]] = []  # mean and size of groups of touching labels
    for height in heights[order] - offsets:
        groups.append((float(height), 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (later, n_later), (earlier, n_earlier) = groups.pop(), groups.pop()
            size = n_later + n_earlier
            groups.append(((later * n_later + earlier * n_earlier) / size, size))
    placed = np.empty(len(heights))
    nearest = np.concatenate([np.full(size, mean) for mean, size in groups])
    placed[order] = np.minimum(nearest, top - offsets[-1]) + offsets
    return placed


def readable(name: str, longest: int = 16) -> str:
    """Convert an identifier to words, shortened in the middle, since similar names differ at their ends."""
    words, tail = name.replace("_", " "), (longest - 1) // 2
    return words if len(words) <= longest else f"{words[: longest - 1 - tail]}…{words[len(words) - tail :]}"


def select_account(rows: pl.DataFrame) -> pl.DataFrame:
    """Select the ensemble's rows if there are several accounts.

    Raises:
        ValueError: if several accounts are there, but not exactly one ensemble.
    """
    if "policy" not in rows.columns or rows["policy"].n_unique() <= 1:
        return rows
    ensemble = rows.filter(pl.col("kind") == "ensemble") if "kind" in rows.columns else rows.clear()
    if ensemble["policy"].n_unique() != 1:
        names = ", ".join(rows["policy"].unique().sort())
        raise ValueError(f"one account can be drawn, but found {names} without a single ensemble")
    return ensemble
