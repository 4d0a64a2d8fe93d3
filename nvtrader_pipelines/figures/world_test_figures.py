"""Figures of a test in a world: the total rewards of its episodes, and the quotes of a market maker's day."""

import numpy as np
import polars as pl
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel, readable

_BINS = 30  # of a histogram
_LONGEST, _LONGEST_ABOVE = 22, 30  # letters of a name beside a line, and above the panel
_QUOTES = pl.Struct({"bid_distance": pl.Float64, "ask_distance": pl.Float64, "inventory": pl.Float64})


def episode_rewards_figure(steps: pl.DataFrame, title: str, unit: str) -> Picture | None:
    """Draw the distributions of the total reward of an episode, of the policy and of the reference.

    Args:
        steps: rows of `rl.trajectories` of one run in a world.
        title: of the figure.
        unit: of rewards.

    Returns:
        None with fewer than two episodes.
    """
    totals = steps.group_by("kind", "policy", "episode").agg(pl.col("reward").sum()).sort("kind", "policy", "episode")
    if totals["episode"].n_unique() < 2:
        return None
    rewards = totals["reward"].to_numpy()
    span = np.ptp(rewards) > 1e-9 * np.abs(rewards).max()  # rewards that differ by rounding alone need no bins
    edges = np.histogram_bin_edges(rewards if span else rewards[:1], _BINS)
    n_seeds = totals.filter(kind="policy")["policy"].n_unique()
    seeds = f"Thick: mean of {n_seeds} seeds, thin: each. " if n_seeds > 1 else ""
    figure = new_figure(title, f"{totals['episode'].n_unique():,} episodes, the same for all. {seeds}Dashed: means.")
    axes = panel(figure, 0.095, 0.17, 0.97, 0.87)
    for place, kind, color in ((0.53, "baseline", theme.ORANGE), (0.095, "policy", theme.BLUE)):
        accounts = totals.filter(kind=kind).partition_by("policy", maintain_order=True)
        shares = [np.histogram(rows["reward"].to_numpy(), edges)[0] / len(rows) for rows in accounts]
        for seed in shares if len(shares) > 1 else ():
            axes.stairs(seed, edges, color=theme.SKY, linewidth=1.0)
        if kind == "baseline":
            axes.stairs(shares[0], edges, color=color, alpha=0.35, fill=True)
        axes.stairs(np.mean(shares, axis=0), edges, color=color, linewidth=3.0)
        mean = float(np.mean([rows["reward"].to_numpy().mean() for rows in accounts]))
        axes.axvline(mean, color=color, linestyle="--", linewidth=2.0)
        text = f"{readable(accounts[0]['policy'][0].partition('/')[0], _LONGEST_ABOVE)}, mean {mean:.4g}"
        figure.text(place, 0.895, text, fontsize=theme.TEXT, fontweight="bold", color=theme.ink(color))
    axes.set_ylim(bottom=0.0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylabel("share of the episodes")
    axes.set_xlabel(f"total reward of an episode ({unit})")
    return Picture(figure)


def quotes_figure(day: pl.DataFrame, title: str) -> Picture | None:
    """Draw the quotes and the inventory of one day, of the first seed and of the reference.

    Args:
        day: rows of `rl.trajectories` of one episode of a run in a world.
        title: of the figure.

    Returns:
        None if steps have no quotes.
    """
    quoted = day.with_columns(day["info"].str.json_decode(_QUOTES).struct.unnest()).drop_nulls("bid_distance")
    if quoted.is_empty():
        return None
    accounts = quoted.sort("kind", "seed", "step").partition_by("policy", maintain_order=True)[:2]
    names = [readable(rows["policy"][0].partition("/")[0], _LONGEST) for rows in accounts]
    spreads = [(rows["bid_distance"] + rows["ask_distance"]).mean() for rows in accounts]
    means = ", ".join(f"{spread:.3g} ({name})" for name, spread in zip(names, spreads, strict=True))
    note = f"Policy of seed {accounts[-1]['seed'][0]}; both meet the same prices. Mean of ask less bid: {means}."
    figure = new_figure(title, note)
    quotes, inventory = panel(figure, 0.095, 0.49, 0.74, 0.89), panel(figure, 0.095, 0.17, 0.74, 0.43)
    inventory.sharex(quotes)
    quotes.tick_params(labelbottom=False)
    sides, holdings = list[EndLabel](), list[EndLabel]()
    for rows, name, color in zip(accounts, names, (theme.ORANGE, theme.BLUE), strict=True):
        for side, quote in (("ask", rows["ask_distance"]), ("bid", -rows["bid_distance"])):
            quotes.stairs(quote, color=color, linewidth=2.0, baseline=None)
            sides.append(EndLabel(quote[-1], f"{side}, {name}", color))
        inventory.stairs(rows["inventory"], color=color, linewidth=2.0, baseline=None)
        holdings.append(EndLabel(rows["inventory"][-1], name, color))
    for axes, labels in ((quotes, sides), (inventory, holdings)):
        axes.axhline(0.0, color="black", linewidth=0.8, zorder=0)
        label_ends(axes, labels)
    inventory.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    quotes.set_ylabel("quote less price\n(money a share)")
    inventory.set_ylabel("inventory (shares)")
    inventory.set_xlabel("step of the day")
    return Picture(figure)
