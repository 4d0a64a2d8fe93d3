"""Figure of the reward terms of a policy."""

import polars as pl
from matplotlib.dates import date2num

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel, readable, select_account

_LONGEST = 21  # letters of a term's name


def reward_terms_figure(decomposition: pl.DataFrame, title: str, note: str | None = None) -> Picture:
    """Draw the running sum of each reward term (session, term, contribution), and their total.

    With several accounts (policy, kind), the ensemble is drawn.

    Raises:
        ValueError: if there is no single account to draw.
    """
    figure = new_figure(title, note)
    axes = panel(figure, 0.095, 0.13, 0.74, 0.88)
    axes.axhline(0.0, color="black", linewidth=0.8)
    labels = []
    mine = select_account(decomposition)
    terms = [rows for _, rows in mine.group_by("term", maintain_order=True)]
    total = mine.group_by("session").agg(pl.col("contribution").sum())
    for i, rows in enumerate([*terms, total]):
        is_total = i == len(terms)
        color, dashes = (theme.BLUE, "-") if is_total else theme.LINE_STYLES[i % len(theme.LINE_STYLES)]
        ordered = rows.sort("session")
        summed = ordered["contribution"].cum_sum()
        sessions = date2num(ordered["session"].to_numpy())
        axes.plot(sessions, summed, color=color, linestyle=dashes, linewidth=3.0 if is_total else 2.0)
        name = "total" if is_total else readable(ordered["term"][0], _LONGEST)
        labels.append(EndLabel(float(summed[-1]), f"{name}  {summed[-1]:+.3g}", color, bold=is_total))
    axes.set_ylabel("reward, running sum")
    axes.xaxis_date()
    label_ends(axes, labels)
    return Picture(figure)
