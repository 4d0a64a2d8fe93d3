"""Figure of an account's gross, financing and guards over time."""

from collections.abc import Mapping

import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import (
    EndLabel,
    Picture,
    label_ends,
    new_figure,
    panel,
    select_account,
    set_date_ticks,
)

GUARDS = (  # name and color of each, from the top
    ("drawdown", theme.VERMILION),
    ("negative_return", theme.ORANGE),
    ("turnover", theme.PURPLE),
    ("shutdown", theme.BLACK),
)
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 0.115, 0.755, 0.88, 0.13, 0.035
_HEIGHTS = {"gross": 3.0, "financing": 1.2, "guards": 1.8, "scale": 0.9}  # of panels, in parts


def exposure_figure(
    curves: pl.DataFrame, guards: pl.DataFrame, limits: Mapping[str, float], title: str, note: str | None = None
) -> Picture:
    """Draw gross with its limits, cumulative financing, and where guards fired, of the ensemble or the only account.

    Args:
        curves: rows of `rl.equity_curves`.
        guards: decisions with guards, as `guard_rows` gives them; may be empty.
        limits: limits of gross by name.
        title: of the figure.
        note: below the panels.
    """
    figure = new_figure(title, note)
    curve, decisions = select_account(curves).sort("session"), select_account(guards).sort("session")
    is_drawn = {
        "gross": True,
        "financing": curve["financing"].sum() > 0.0,
        "guards": len(decisions) > 0,
        "scale": (decisions["scale"] < 1.0).any(),
    }
    names = [name for name, shown in is_drawn.items() if shown]
    part = (_TOP - _BOTTOM - _GAP * (len(names) - 1)) / sum(_HEIGHTS[name] for name in names)
    days, top = date2num(curve["session"].to_numpy()), _TOP
    for name in names:
        axes = panel(figure, _LEFT, top - part * _HEIGHTS[name], _RIGHT, top)
        axes.set_xlim(days[0] - 1.0, days[-1] + 1.0)
        labels = {
            "gross": lambda axes: _draw_gross(axes, curve, limits),
            "financing": lambda axes: _draw_financing(axes, curve),
            "guards": lambda axes: _draw_guards(axes, decisions),
            "scale": lambda axes: _draw_scale(axes, decisions),
        }[name](axes)
        set_date_ticks(axes)
        axes.tick_params(labelbottom=name == names[-1])
        label_ends(axes, labels)
        top -= part * _HEIGHTS[name] + _GAP
    return Picture(figure)


def _draw_gross(axes: Axes, curve: pl.DataFrame, limits: Mapping[str, float]) -> list[EndLabel]:
    days, gross = date2num(curve["session"].to_numpy()), curve["gross"]
    before = curve["gross_before_cap"]
    labels = []
    if (before > gross).any():
        axes.plot(days, before, color=theme.SKY, linewidth=0.8)
        labels.append(EndLabel(float(before[-1]), f"before the cap, max {before.max():.2f}", theme.SKY))
    axes.plot(days, gross, color=theme.BLUE, linewidth=0.8)
    labels.append(EndLabel(float(gross[-1]), f"gross, mean {gross.mean():.2f}", theme.BLUE, bold=True))
    for name, limit in limits.items():
        axes.axhline(limit, color=theme.GREY, linestyle="--", linewidth=1.2)
        labels.append(EndLabel(limit, f"{name} {limit:g}", theme.GREY))
    axes.margins(y=0.08)
    axes.set_ylabel("gross at the close")
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    return labels


def _draw_financing(axes: Axes, curve: pl.DataFrame) -> list[EndLabel]:
    paid = curve["financing"].cum_sum()
    axes.plot(date2num(curve["session"].to_numpy()), paid, color=theme.GREEN, linewidth=1.6)
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("financing,\ncumulative")
    axes.yaxis.set_major_locator(MaxNLocator(4, prune="lower"))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    return [EndLabel(float(paid[-1]), f"{paid[-1]:.1%} of equity", theme.GREEN)]


def _draw_guards(axes: Axes, decisions: pl.DataFrame) -> list[EndLabel]:
    days = date2num(decisions["session"].to_numpy())
    fired = decisions.with_columns(shutdown=pl.col("n_shutdown") > 0)
    labels = []
    for height, (name, color) in zip(range(len(GUARDS) - 1, -1, -1), GUARDS, strict=True):
        axes.vlines(days[fired[name].to_numpy()], height - 0.35, height + 0.35, color=color, linewidth=0.6)
        labels.append(EndLabel(height, f"{name.replace('_', ' ')} {fired[name].mean():.0%}", color))
    axes.set_ylim(-0.5, len(GUARDS) - 0.5)
    axes.set_yticks([])
    axes.set_ylabel("guards\nthat fired")
    return labels


def _draw_scale(axes: Axes, decisions: pl.DataFrame) -> list[EndLabel]:
    scale = decisions["scale"]
    axes.step(date2num(decisions["session"].to_numpy()), scale, where="post", color=theme.VERMILION, linewidth=1.2)
    axes.set_ylim(0.0, 1.08)
    axes.set_ylabel("scale of\nweights")
    axes.set_yticks([0.5, 1.0])
    return [EndLabel(float(scale[-1]), f"scale, mean {scale.mean():.2f}", theme.VERMILION)]
