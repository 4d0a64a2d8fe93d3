"""Figures of PRUDEX by name; PRUDEX-Compass and PRIDE-Star, where 50 is 1/N."""

from collections.abc import Mapping
from typing import cast

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.prudex.compass import Compass
from nvtrader_pipelines.evaluation.prudex.measures import AXES, MEASURES, OF_AXIS, PRIDE, RING
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, readable
from nvtrader_pipelines.figures.prudex_extremes import extremes_figure
from nvtrader_pipelines.figures.prudex_holdings import heat_figure, plane_figure
from nvtrader_pipelines.figures.prudex_palette import experiment_colors, with_hidden
from nvtrader_pipelines.figures.prudex_reliability import profile_figure, rank_figure

_LETTERS = dict(zip(AXES, ("P", "R", "U", "D", "E", "X"), strict=True))
_LEVELS = (25.0, 50.0, 75.0, 100.0)
_INNER, _OUTER, _NAMES = 108.0, 126.0, 130.0  # radii of the ring of measures and of their names
_NAMES_OF = {"t_sne": "t-SNE"}
_ABOVE = 0.3  # sine of the angle below which a name is above or below the ring, not beside it
_GAP = np.deg2rad(1.5)
_SIDES = {-1: "right", 0: "center", 1: "left"}  # alignment of outer text left of, on or right of the middle
_PLATE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
_Scores = Mapping[str, Mapping[str, float | None]]  # by policy, then by axis or statistic


def prudex_figures(compass: Compass) -> dict[str, Picture]:
    """Draw the source's five charts, the actions by t-SNE and the heatmap of weights, by name."""
    table, note = compass.table, compass.note
    return {
        "compass": compass_figure(table, note=note),
        "pride_star": pride_star_figure(table, note=note),
        "performance_profile": profile_figure(compass.profiles, table, note=note),
        "rank_distribution": rank_figure(compass.ranks, table, note=note),
        "extreme_markets": extremes_figure(table, note=note),
        "actions": plane_figure(compass.plane, table, note=note),
        "weights": heat_figure(compass.heat, table, note=note),
    }


def compass_figure(table: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw the axes of PRUDEX as a hexagon, where 50 is 1/N, inside a ring of the measures."""
    colors = experiment_colors(table)
    scores = _scores(table.filter(pl.col("measure") == OF_AXIS), "axis")
    figure = new_figure("PRUDEX-Compass", with_hidden(table, note))
    axes = _round(figure, (-0.005, 0.10, 0.60, 0.825), limit=_NAMES + 12.0)
    angles = _angles(len(AXES))
    _web(axes, angles)
    for policy, color in colors.items():
        _outline(axes, angles, [scores[policy][axis] for axis in AXES], color)
    for angle, axis in zip(angles, AXES, strict=True):
        name, side = axis.replace("_", "-").capitalize(), _SIDES[round(float(np.sign(np.round(np.sin(angle), 6))))]
        inwards = {"left": "right", "right": "left"}.get(side, side)
        axes.text(
            angle, 97.0, name, fontsize=theme.TEXT, fontweight="bold", ha=inwards, va="center", bbox=_PLATE, zorder=2
        )
    _ring(axes, table, colors)
    _key(figure, table, colors, scores)
    return Picture(figure)


def pride_star_figure(table: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw eight scores of each policy in PRUDEX as an octagon; the dashed one is 1/N."""
    colors = experiment_colors(table)
    scores = _scores(table.filter(pl.col("statistic").is_in(list(PRIDE.values()))), "statistic")
    figure = new_figure("PRIDE-Star", with_hidden(table, note))
    angles = _angles(len(PRIDE))
    figure.text(0.06, 0.905, "scores against 1/N, which is the dashed line at 50", fontsize=theme.TEXT)
    columns = min(3, max(len(colors), 1))
    lines = -(-len(colors) // columns)
    for i, (policy, color) in enumerate(colors.items()):
        width, height = 0.96 / columns, 0.79 / lines
        left, bottom = 0.02 + (i % columns) * width, 0.87 - (i // columns + 1) * height
        axes = _round(figure, (left, bottom, width, 0.86 * height), limit=145.0)
        _web(axes, angles)
        values = [scores[policy][statistic] for statistic in PRIDE.values()]
        _outline(axes, angles, values, color, filled=True)
        small = theme.TEXT if lines == 1 else theme.TEXT - 3
        for angle, spoke, value in zip(angles, PRIDE, values, strict=True):
            found = "-" if value is None else f"{value:.0f}"
            axes.text(angle, 121.0, f"{spoke}\n{found}", fontsize=small, ha="center", va="center", linespacing=0.9)
        axes.text(
            0.0,
            142.0,
            readable(policy, 24),
            fontsize=theme.TEXT,
            fontweight="bold",
            color=theme.ink(color),
            ha="center",
        )
    return Picture(figure)


def _scores(rows: pl.DataFrame, column: str) -> _Scores:
    scores: dict[str, dict[str, float | None]] = {}
    for policy, name, score in rows.filter(pl.col("kind") == "ensemble").select("policy", column, "score").iter_rows():
        scores.setdefault(policy, {})[name] = score
    return scores


def _round(figure: Figure, box: tuple[float, float, float, float], limit: float) -> PolarAxes:
    """Add polar axes that start at the top and run clockwise."""
    axes = cast(PolarAxes, figure.add_axes(box, projection="polar"))
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_ylim(0.0, limit)
    axes.set_axis_off()
    return axes


def _angles(n: int) -> NDArray[np.float64]:
    return 2.0 * np.pi * np.arange(n) / n


def _web(axes: PolarAxes, angles: NDArray[np.float64]) -> None:
    """Draw spokes and a polygon per level; 50 is 1/N."""
    around = np.append(angles, angles[0])
    for level in _LEVELS:
        color, dashes, width = (theme.BLACK, "--", 1.6) if level == 50.0 else (theme.LIGHT_GREY, "-", 1.0)
        axes.plot(around, np.full(len(around), level), color=color, linestyle=dashes, linewidth=width, zorder=1)
    for angle in angles:
        axes.plot([angle, angle], [0.0, 100.0], color=theme.LIGHT_GREY, linewidth=0.8, zorder=1)


def _outline(
    axes: PolarAxes, angles: NDArray[np.float64], values: list[float | None], color: str, *, filled: bool = False
) -> None:
    """Draw a policy's polygon, open where it has no score."""
    radii = np.array([np.nan if value is None else value for value in values])
    around, out = np.append(angles, angles[0]), np.append(radii, radii[0])
    axes.plot(around, out, color=color, linewidth=2.8, marker="o", markersize=6, zorder=3)
    if filled and np.isfinite(radii).all():
        axes.fill(around, out, color=color, alpha=0.2, zorder=2)


def _ring(axes: PolarAxes, table: pl.DataFrame, colors: Mapping[str, str]) -> None:
    """Draw a ring field per measure with a strip per policy, filled where computed."""
    reported = set(
        table.filter(pl.col("reported"), pl.col("kind") == "ensemble").select("policy", "measure").iter_rows()
    )
    sector = 2.0 * np.pi / len(AXES)
    for number, axis in enumerate(AXES):
        measures = [measure.name for measure in MEASURES if measure.axis == axis and measure.in_ring]
        start, width = (number - 0.5) * sector, sector / max(len(measures), 1)
        for i, name in enumerate(measures):
            left = start + i * width + _GAP
            strip = (width - 2.0 * _GAP) / max(len(colors), 1)
            for j, (policy, color) in enumerate(colors.items()):
                face = color if (policy, name) in reported else "white"
                axes.bar(
                    left + j * strip, _OUTER - _INNER, strip, _INNER, align="edge", color=face, edgecolor=theme.GREY
                )
            _name(axes, start + (i + 0.5) * width, _NAMES_OF.get(name, name.replace("_", " ")))
        if not measures:
            _name(axes, number * sector, "no scored\nmeasure")


def _name(axes: PolarAxes, angle: float, text: str) -> None:
    across = float(np.sin(angle))
    side = _SIDES[0 if abs(across) < _ABOVE else round(np.sign(across))]
    level = "center" if side != "center" else "bottom" if np.cos(angle) > 0.0 else "top"
    axes.text(angle, _NAMES, text, fontsize=theme.TEXT - 2, ha=side, va=level)


def _key(figure: Figure, table: pl.DataFrame, colors: Mapping[str, str], scores: _Scores) -> None:
    columns = [0.795 + 0.0345 * i for i in range(len(AXES))]
    figure.text(0.63, 0.86, "score by axis, 50 is 1/N (dashed)", fontsize=theme.TEXT, fontweight="bold")
    for x, axis in zip(columns, AXES, strict=True):
        figure.text(x, 0.81, _LETTERS[axis], fontsize=theme.TEXT, ha="right", color=theme.GREY, fontweight="bold")
    meant = [f"{letter} {axis.replace('_', '-')}" for axis, letter in _LETTERS.items()]
    lines = f"{', '.join(meant[:3])},\n{', '.join(meant[3:])}"
    figure.text(0.63, 0.15, lines, fontsize=theme.TEXT - 2, color=theme.GREY, va="center")
    ring = table.filter(pl.col("reported"), pl.col("measure").is_in(RING))
    for row, (policy, color) in enumerate(colors.items()):
        y = 0.765 - 0.098 * row
        mine = {"color": theme.ink(color), "fontsize": theme.TEXT}
        n_reported = ring.filter(pl.col("policy") == policy)["measure"].n_unique()
        figure.text(0.63, y, readable(policy, 36), fontweight="bold", **mine)
        figure.text(0.63, y - 0.042, f"{n_reported} of {len(RING)} measured", fontsize=theme.TEXT - 2, color=theme.GREY)
        for x, axis in zip(columns, AXES, strict=True):
            score = scores[policy][axis]
            figure.text(x, y - 0.042, "-" if score is None else f"{score:.0f}", ha="right", **mine)
