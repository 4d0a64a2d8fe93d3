"""Figure of learning curves, fold by fold."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import Picture, new_figure, panel

_COLUMNS = 4


def learning_figure(training_curves: pl.DataFrame, title: str, note: str | None = None) -> Picture:
    """Draw mean reward per step over timesteps: a panel per fold of `TRAINING_CURVE`, one scale."""
    figure = new_figure(title, note)
    figure.text(0.06, 0.905, "thick: mean of the seeds; thin: one seed each", fontsize=theme.TEXT, color=theme.BLUE)
    folds = training_curves["fold"].unique().sort().to_list()
    columns = min(_COLUMNS, len(folds))
    lines = -(-len(folds) // columns) if folds else 0
    boxes = [_box(i, columns, lines) for i in range(len(folds))]
    shared: Axes | None = None
    for i, (fold, box) in enumerate(zip(folds, boxes, strict=True)):
        axes = panel(figure, *box)
        if shared is not None:
            axes.sharex(shared)
            axes.sharey(shared)
        shared = shared or axes
        _draw(axes, training_curves.filter(pl.col("fold") == fold))
        axes.set_title(f"fold {fold}", fontsize=theme.TEXT, loc="left")
        axes.tick_params(labelleft=i % columns == 0, labelbottom=i + columns >= len(folds))
    rewards = training_curves["mean_reward"].to_numpy()
    if (rewards < 0.0).any() and (rewards > 0.0).any():
        for axes in figure.axes:
            axes.axhline(0.0, color="black", linewidth=0.8)
    figure.text(0.53, 0.10, "timesteps", fontsize=theme.TEXT, ha="center", va="bottom")
    figure.text(0.012, 0.5, "mean reward per step", fontsize=theme.TEXT, rotation=90, va="center")
    return Picture(figure)


def _box(i: int, columns: int, lines: int) -> tuple[float, float, float, float]:
    """Left, bottom, right, top of the i-th small panel."""
    width, height = 0.88 / columns, 0.75 / lines
    left, top = 0.105 + (i % columns) * width, 0.85 - (i // columns) * height
    return left, top - height + 0.08, left + width - 0.025, top


def _draw(axes: Axes, rows: pl.DataFrame) -> None:
    for _, seed in rows.group_by("seed", maintain_order=True):
        ordered = seed.sort("timesteps")
        axes.plot(ordered["timesteps"], ordered["mean_reward"], color=theme.SKY, linewidth=1.0)
    mean = rows.group_by("timesteps").agg(pl.col("mean_reward").mean(), pl.len()).sort("timesteps")
    complete = mean.filter(pl.col("len") == rows["seed"].n_unique())  # a mean over fewer seeds would jump
    axes.plot(complete["timesteps"], complete["mean_reward"], color=theme.BLUE, linewidth=2.5)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(4))
