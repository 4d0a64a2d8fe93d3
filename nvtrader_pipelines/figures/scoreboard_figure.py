"""Figure of the scoreboard: net Sharpe ratios with intervals, best on top."""

import polars as pl
from matplotlib.axes import Axes

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel, readable

KINDS = {
    "run": (theme.BLUE, "run of this home"),
    "sb3": (theme.PURPLE, "trained elsewhere"),
    "weights": (theme.GREEN, "weights file"),
}
BASELINE = (theme.GREY, "baseline")
_MAX_ROWS = 14
_COLUMNS = (("info. ratio", 0.72), ("deflated", 0.85), ("drawdown", 0.96))


def scoreboard_figures(board: pl.DataFrame) -> dict[str, Picture]:
    """Draw a figure per source of the scoreboard, by name `scoreboard_<source>`."""
    ranked = board.filter(pl.col("rank").is_not_null())
    sources = ranked.partition_by("source", as_dict=True, maintain_order=True)
    return {f"scoreboard_{source}": scoreboard_figure(rows) for (source,), rows in sources.items()}


def scoreboard_figure(board: pl.DataFrame, note: str | None = None) -> Picture:
    """Draw net Sharpe ratios, with intervals, of the 14 best of a contest's ranked entrants."""
    rows = board.sort("rank", "entrant").head(_MAX_ROWS)
    first, last = rows["first_session"][0], rows["last_session"][0]
    market = f"{rows['source'][0]} ({rows['calendar'][0]})"
    title = f"Net Sharpe ratio on {market}, {first:%Y-%m-%d} to {last:%Y-%m-%d}"
    figure = new_figure(title, note)
    figure.text(0.06, 0.085, _explanation(len(board)), fontsize=theme.TEXT - 2, color=theme.GREY, va="bottom")
    axes = panel(figure, 0.22, 0.245, 0.64, 0.85)
    _draw(axes, rows)
    _numbers(axes, rows)
    legend = {KINDS.get(kind, BASELINE) for kind in rows["kind"]}
    left = 0.06
    for color, words in (*KINDS.values(), BASELINE):
        if (color, words) in legend:
            figure.text(left, 0.905, words, color=theme.ink(color), fontsize=theme.TEXT, va="center")
            left += 0.025 + 0.0085 * len(words)
    return Picture(figure)


def _explanation(n_entrants: int) -> str:
    left_out = n_entrants - _MAX_ROWS
    more = f" Not drawn: {left_out} more." if left_out > 0 else ""
    return (
        "Bars: 95 % intervals, stationary bootstrap; ticks: other openings. Info. ratio: information ratio against\n"
        "the best baseline, with hindsight. Deflated: probability that it exceeds the luck of the best trial."
        f"{more}"
    )


def _draw(axes: Axes, rows: pl.DataFrame) -> None:
    axes.axvline(0.0, color="black", linewidth=0.8)
    for place, row in enumerate(rows.iter_rows(named=True)):
        color = KINDS.get(row["kind"], BASELINE)[0]
        axes.plot([row["sharpe_low"], row["sharpe_high"]], [place, place], color=color, linewidth=5, alpha=0.4)
        axes.plot(
            row["openings"] or [], [place] * len(row["openings"] or []), "|", color=theme.ink(color), markersize=16
        )
        axes.plot(row["sharpe"], place, "o", color=color, markersize=11)
    axes.set_yticks(
        range(len(rows)), [f"{row[0]}. {readable(row[1], 20)}" for row in rows.select("rank", "entrant").rows()]
    )
    for label, kind in zip(axes.get_yticklabels(), rows["kind"], strict=True):
        label.set_color(theme.ink(KINDS.get(kind, BASELINE)[0]))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.05)
    axes.autoscale_view(scaley=False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("annualized, net of costs")


def _numbers(axes: Axes, rows: pl.DataFrame) -> None:
    figure = axes.get_figure()
    assert figure is not None
    top = axes.get_position()
    for words, left in _COLUMNS:
        figure.text(left, top.y1 + 0.02, words, fontsize=theme.TEXT, color=theme.GREY, ha="right", va="center")
    for place, row in enumerate(rows.iter_rows(named=True)):
        height = top.y1 - (place + 0.5) / len(rows) * top.height
        ratio, deflated = row["information_ratio"], row["deflated_information_ratio"]
        texts = (
            "" if ratio is None else f"{ratio:+.2f}",
            "" if deflated is None else f"{deflated:.2f}",
            f"{row['max_drawdown']:.0%}",
        )
        for (_, left), text in zip(_COLUMNS, texts, strict=True):
            figure.text(left, height, text, fontsize=theme.TEXT, ha="right", va="center")
