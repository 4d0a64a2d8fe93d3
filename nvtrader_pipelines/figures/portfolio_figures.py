"""Figures of a traded account: equity, weights after each pipeline stage, and the rebalance plan."""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter, date2num
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, PercentFormatter

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import (
    EndLabel,
    Picture,
    draw_cells,
    label_ends,
    new_figure,
    panel,
    pivot_cells,
    readable,
)
from nvtrader_pipelines.portfolio.cash import CASH

_MAX_NAMES = 13  # readable rows of a map
_MAX_FINDINGS = 6
_DARK = 0.75  # share of the strongest color from which text is white
_STRONG = 0.05  # change of weight with the strongest color, unless larger ones occur
_FEW = 5  # sessions up to which each has its own date label
_LEVELS = {"hard": theme.VERMILION, "soft": theme.ORANGE, "warn": theme.GREY}
_ORDER = list(_LEVELS)
_LEFT, _RIGHT = 0.10, 0.785  # panels of an account, with room for labels


def account_figures(states: pl.DataFrame, references: Mapping[str, pl.DataFrame] | None = None) -> dict[str, Picture]:
    """Draw `equity_curve` of an account's `portfolio.portfolio_state`; empty without rows."""
    if states.is_empty():
        return {}
    last = states.sort("session").row(-1, named=True)
    title = f"Account {last['account']} until {last['session']}"
    note = (
        f"Last traded by {last['policy']} of run {last['run_id']}. Cost in all: {states['cost'].sum():.2%} of equity."
    )
    return {"equity_curve": account_figure(states, title, references, note)}


def stages_figures(target_weights: pl.DataFrame) -> dict[str, Picture]:
    """Draw the last decision of an account's `portfolio.target_weights`; empty without rows."""
    last = target_weights.filter(pl.col("session") == pl.col("session").max())
    if last.is_empty():
        return {}
    title = f"Target weights in percent, stage by stage: {last['account'][0]}, close of {last['session'][0]}"
    return {"target_weights": stages_figure(last, title)}


def plan_figures(plans: pl.DataFrame) -> dict[str, Picture]:
    """Draw the last plan of an account's `portfolio.rebalance_plan`; empty without rows."""
    if plans.is_empty():
        return {}
    plan = plans.sort("session").row(-1, named=True)
    title = f"Plan of {plan['account']}, close of {plan['session']}: {plan['status']}"
    note = "; ".join(filter(None, (f"Plan {plan['plan_id']}, one-way turnover {plan['turnover']:.1%}", plan["reason"])))
    return {"rebalance_plan": plan_figure(plan, title, note)}


def account_figure(
    states: pl.DataFrame, title: str, references: Mapping[str, pl.DataFrame] | None = None, note: str | None = None
) -> Picture:
    """Draw an account's equity beside its references', and its drawdown, cash and turnover.

    Args:
        states: rows of `portfolio.portfolio_state` of one account: session, equity (1 at the opening), drawdown
            (positive), cash (share of equity) and turnover (one-way, 0 where nothing was traded).
        title: above the figure.
        references: session and equity by name; rescaled to the account's equity at its first session.
        note: under the figure.
    """
    rows = states.sort("session")
    figure = new_figure(title, note)
    wealth = panel(figure, _LEFT, 0.55, _RIGHT, 0.89)
    losses = panel(figure, _LEFT, 0.375, _RIGHT, 0.51)
    cash = panel(figure, _LEFT, 0.265, _RIGHT, 0.335)
    trades = panel(figure, _LEFT, 0.125, _RIGHT, 0.225)
    days = _days(rows)
    for axes in (wealth, losses, cash, trades):
        _time_axis(axes, days)
    labels = _references(wealth, rows, references or {})
    labels.append(_wealth(wealth, rows))
    _losses(losses, rows)
    label_ends(cash, [_cash(cash, rows)])
    label_ends(trades, [_trades(trades, rows)])
    for axes in (wealth, losses, cash):
        axes.tick_params(labelbottom=False)
    label_ends(wealth, labels)
    label_ends(losses, [EndLabel(-rows["drawdown"][-1], f"now {rows['drawdown'][-1]:.1%}", theme.BLUE)])
    return Picture(figure)


def _days(rows: pl.DataFrame) -> FloatArray:
    return np.asarray(date2num(rows["session"].to_numpy()), dtype=np.float64)


def _time_axis(axes: Axes, days: FloatArray) -> None:
    """Set date ticks and limits, with a width even for one session."""
    few = len(days) <= _FEW
    locator = FixedLocator(days.tolist()) if few else AutoDateLocator(maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(DateFormatter("%Y-%m-%d") if few else ConciseDateFormatter(locator))
    axes.set_xlim(days[0] - 1.0, days[-1] + 1.0)


def _wealth(axes: Axes, rows: pl.DataFrame) -> EndLabel:
    """Draw the account's line and the shared axis, and return its label."""
    marker = "o" if len(rows) <= _FEW else None  # a line of so few points hardly shows
    axes.plot(_days(rows), rows["equity"], color=theme.BLUE, linewidth=3.0, marker=marker)
    axes.set_ylabel("equity after costs\n(opening = 1)")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.margins(y=0.08)
    return EndLabel(rows["equity"][-1], f"this account  {rows['equity'][-1]:.4g}x", theme.BLUE, bold=True)


def _references(axes: Axes, rows: pl.DataFrame, references: Mapping[str, pl.DataFrame]) -> list[EndLabel]:
    """Draw the references, rescaled to the account at the first common session, and return their labels."""
    labels = []
    for i, (name, curve) in enumerate(references.items()):
        both = rows.select("session", account="equity").join(curve, on="session").sort("session")
        if both.is_empty():
            continue
        color, dashes = theme.LINE_STYLES[i % len(theme.LINE_STYLES)]
        equity = both["equity"] / both["equity"][0] * both["account"][0]
        axes.plot(_days(both), equity, color=color, linestyle=dashes, linewidth=1.8, zorder=3)
        labels.append(EndLabel(equity[-1], f"{readable(name)}  {equity[-1]:.4g}x", color))
    return labels


def _losses(axes: Axes, rows: pl.DataFrame) -> None:
    axes.plot(_days(rows), -rows["drawdown"], color=theme.BLUE, linewidth=1.5)
    axes.fill_between(_days(rows), -rows["drawdown"], color=theme.BLUE, alpha=0.25, linewidth=0)
    axes.set_ylim(-1.1 * max(float(rows["drawdown"].to_numpy().max()), 0.01), 0.0)
    axes.set_ylabel("drawdown")
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _cash(axes: Axes, rows: pl.DataFrame) -> EndLabel:
    weights = rows["cash"].to_numpy()
    axes.fill_between(_days(rows), weights, step="post", color=theme.OTHERS_GREY, linewidth=0)
    lowest, highest = min(0.0, float(np.floor(weights.min()))), max(1.0, float(np.ceil(weights.max())))
    axes.set_ylim(lowest, highest)
    axes.set_yticks(sorted({lowest, 0.0, highest}))
    axes.set_ylabel("cash")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return EndLabel(rows["cash"][-1], f"now {rows['cash'][-1]:.1%}", theme.OTHERS_GREY)


def _trades(axes: Axes, rows: pl.DataFrame) -> EndLabel:
    """Draw one-way turnover as bars; a first purchase larger than later trades is cut off."""
    traded = rows.filter(pl.col("turnover") > 0.0).sort("session")
    axes.vlines(_days(traded), 0.0, traded["turnover"], color=theme.ORANGE, linewidth=2.0)
    later = traded["turnover"].to_numpy()[1:] if len(traded) > 1 else traded["turnover"].to_numpy()
    axes.set_ylim(0.0, 1.15 * max(float(later.max(initial=0.0)), 0.01))
    axes.set_ylabel("turnover")
    axes.yaxis.set_major_locator(MaxNLocator(2))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    text = f"traded in {len(traded)} of {len(rows)}\nsessions, {traded['turnover'].sum():.1%} in all"
    return EndLabel(0.5 * axes.get_ylim()[1], text, theme.ORANGE)


def stages_figure(target_weights: pl.DataFrame, title: str) -> Picture:
    """Draw a decision of `portfolio.target_weights`; cells that a stage changed are colored."""
    rows = target_weights.sort("step", maintain_order=True)
    symbols = rows["symbol"].unique(maintain_order=True).to_list()
    steps = rows.select("step", "stage", "reason").unique("step", maintain_order=True)
    weights, changes = (
        np.nan_to_num(pivot_cells(rows, ("symbol", "step", column), symbols, steps["step"].to_list()))
        for column in ("weight", "change")
    )
    before = weights[:, :1] - changes[:, :1]
    names, shown = _largest(symbols, np.hstack([before, weights]))
    figure = new_figure(title, _reasons(steps))
    axes = figure.add_axes((0.13, 0.14, 0.84, 0.64))
    moves = np.diff(shown, axis=1, prepend=shown[:, :1])
    shade = moves / max(float(np.abs(moves).max()), _STRONG)
    draw_cells(axes, shown, shade, dark=_DARK, grid=(theme.LIGHT_GREY, 1.0))
    heads = ["held", *(name.replace("_", "\n") for name in steps["stage"])]
    axes.set_xticks(range(len(heads)), heads, fontsize=theme.TEXT - 2, linespacing=1.1)
    axes.set_yticks(range(len(names)), names, fontsize=theme.TEXT)
    figure.text(
        0.13, 0.885, "more than in the column before", color=theme.ink(theme.BLUE), fontsize=theme.TEXT - 1, va="center"
    )
    figure.text(0.36, 0.885, "less", color=theme.ink(theme.VERMILION), fontsize=theme.TEXT - 1, va="center")
    return Picture(figure)


def _reasons(steps: pl.DataFrame) -> str:
    reasons = [f"{stage.replace('_', ' ')}: {reason}" for _, stage, reason in steps.rows() if reason]
    return "; ".join(reasons) or "No stage changed the proposed weights."


def _largest(symbols: list[str], weights: FloatArray) -> tuple[list[str], FloatArray]:
    """Names and weights (names, columns): the largest ones, the sum of the others, cash."""
    cash = symbols.index(CASH)
    order = np.argsort(-np.abs(weights).max(axis=1), kind="stable").tolist()
    held = [i for i in order if i != cash and weights[i].any()]
    shown, others = held[:_MAX_NAMES], held[_MAX_NAMES:]
    names, rows = [symbols[i] for i in shown], [weights[i] for i in shown]
    if others:
        names.append(f"{len(others)} others")
        rows.append(weights[others].sum(axis=0))
    return [*names, CASH], np.array([*rows, weights[cash]])


def plan_figure(plan: Mapping[str, Any], title: str, note: str | None = None) -> Picture:
    """Draw a row of `portfolio.rebalance_plan`: held and target weights, beside the findings."""
    figure = new_figure(title, note)
    held, target = np.array(plan["held_weights"]), np.array(plan["target_weights"])
    _moves(panel(figure, 0.11, 0.15, 0.52, 0.87), plan["symbols"], held, target)
    findings = sorted(json.loads(plan["findings"]), key=lambda finding: _ORDER.index(finding["level"]))
    figure.text(0.57, 0.86, _count(len(findings)), fontsize=theme.TEXT, fontweight="bold", va="center")
    top = 0.81
    for finding in findings[:_MAX_FINDINGS]:
        level, lines = finding["level"], textwrap.wrap(finding["sentence"], 46, max_lines=3, placeholder=" …")
        figure.text(0.57, top, level, fontsize=theme.TEXT, fontweight="bold", color=theme.ink(_LEVELS[level]), va="top")
        figure.text(0.62, top, "\n".join(lines), fontsize=theme.TEXT, va="top", linespacing=1.25)
        top -= 0.034 * len(lines) + 0.02
    return Picture(figure)


def _count(n_findings: int) -> str:
    if not n_findings:
        return "no compliance findings"
    more = f", the first {_MAX_FINDINGS}" if n_findings > _MAX_FINDINGS else ""
    return f"compliance findings: {n_findings}{more}"


def _moves(axes: Axes, symbols: list[str], held: FloatArray, target: FloatArray) -> None:
    """Draw a line from held to target weight per name, largest move on top, cash last."""
    moved = np.argsort(-np.abs(target - held)[:-1], kind="stable")
    shown = [i for i in moved.tolist() if held[i] or target[i]][:_MAX_NAMES]
    rows = [*shown, len(symbols) - 1]
    for place, i in enumerate(rows):
        color = theme.VERMILION if target[i] < held[i] else theme.BLUE
        axes.plot([held[i], target[i]], [place, place], color=color, linewidth=4.0, alpha=0.5)
        axes.plot(held[i], place, "o", color="white", markeredgecolor=theme.GREY, markeredgewidth=2, markersize=9)
        axes.plot(target[i], place, "o", color=color, markersize=10)
    axes.set_yticks(range(len(rows)), [symbols[i] for i in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=theme.LIGHT_GREY, linewidth=0.8)
    axes.margins(x=0.04)
    axes.autoscale_view(scaley=False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("share of equity: held (open) to target (blue bought, orange sold)")
