"""Figure of a policy tuned to preference pairs: its training by epoch, and what it orders of held-out pairs."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import EndLabel, Picture, label_ends, new_figure, panel
from nvtrader_pipelines.preferences.holdout_auc import CalibrationBin, HoldoutAuc

_DASHES = {"train": "-", "stop": "--"}
_LN_2 = float(np.log(2.0))
_NOTE = (
    "Means over folds and seeds. Right: {pairs:,} held-out pairs of {decisions:,} decisions. AUC: how often a pair "
    "whose first portfolio is the chosen one ranks above a pair whose second is; its 95 % interval draws whole "
    "weeks, since pairs of one week are alike. Below: how often the first is chosen, against the probability "
    "that the policy gives."
)
_MAX_MARKERS = 20  # epochs up to which each is marked
_MIN_SPANS = {"loss": 0.01, "log_ratio_chosen": 0.01, "kl": 0.001}  # of vertical axes; less is rounding
_MIN_HALF = 0.05  # of axes around 0.5
_TICK_STEPS, _TICK_STEPS_AROUND_HALF = (1, 2, 5, 10), (1, 2.5, 5, 10)  # 0.5 is a multiple of the latter


def tuning_figure(epochs: pl.DataFrame, auc: HoldoutAuc, calibration: Sequence[CalibrationBin], title: str) -> Picture:
    """Draw losses, log-probabilities and divergence by epoch, and AUC and calibration on held-out pairs.

    Args:
        epochs: columns of `PREFERENCE_EPOCH`, means over folds and seeds; pairs that stop the training may be missing.
        auc: of held-out pairs.
        calibration: bins of held-out pairs, from the lowest prediction up.
        title: of the figure.
    """
    figure = new_figure(title, _NOTE.format(pairs=auc.n_pairs, decisions=auc.n_decisions))
    has_stop = "stop" in epochs["split"]
    key = "solid: training pairs; dashed: pairs that stop the training" if has_stop else "training pairs"
    figure.text(0.075, 0.905, key, fontsize=theme.TEXT, color=theme.GREY, va="center")
    _draw_loss(panel(figure, 0.075, 0.22, 0.265, 0.82), epochs)
    _draw_log_ratios(panel(figure, 0.42, 0.49, 0.61, 0.82), epochs)
    _draw_divergence(panel(figure, 0.42, 0.22, 0.61, 0.41), epochs)
    _draw_auc(panel(figure, 0.76, 0.68, 0.97, 0.82), auc)
    _draw_calibration(panel(figure, 0.76, 0.22, 0.97, 0.53), calibration)
    return Picture(figure)


def _draw_loss(axes: Axes, epochs: pl.DataFrame) -> None:
    labels = [
        EndLabel(value, split, theme.GREEN, bold=True)
        for split, value in _draw_lines(axes, epochs, "loss", theme.GREEN)
    ]
    if np.isclose(epochs.sort("epoch")["loss"][0], _LN_2, atol=1e-4):  # the IPO loss begins elsewhere
        axes.axhline(_LN_2, color=theme.BLACK, linewidth=0.8)
        labels.append(EndLabel(_LN_2, "start, ln 2", theme.BLACK))
    axes.set_title("loss of a pair", fontsize=theme.TEXT, loc="left")
    axes.set_xlabel("epoch")
    _set_limits(axes, "loss")
    label_ends(axes, labels)


def _draw_log_ratios(axes: Axes, epochs: pl.DataFrame) -> None:
    axes.axhline(0.0, color=theme.BLACK, linewidth=0.8)
    labels = []
    for name, color in (("chosen", theme.BLUE), ("rejected", theme.ORANGE)):
        ends = dict(_draw_lines(axes, epochs, f"log_ratio_{name}", color))
        labels.append(EndLabel(ends["train"], name, color, bold=True))
    axes.set_title("log-probability less that of the start", fontsize=theme.TEXT, loc="left")
    axes.tick_params(labelbottom=False)
    _set_limits(axes, "log_ratio_chosen")
    label_ends(axes, labels)


def _draw_divergence(axes: Axes, epochs: pl.DataFrame) -> None:
    axes.axhline(0.0, color=theme.BLACK, linewidth=0.8)
    _draw_lines(axes, epochs, "kl", theme.GREEN)
    axes.set_title("divergence from the start, nats", fontsize=theme.TEXT, loc="left")
    axes.set_xlabel("epoch")
    _set_limits(axes, "kl")
    axes.set_ylim(bottom=-0.05 * axes.get_ylim()[1])


def _draw_lines(axes: Axes, epochs: pl.DataFrame, column: str, color: str) -> list[tuple[str, float]]:
    """Draw a column over epochs, a line per split, and return the last value of each."""
    ends = []
    for (split,), rows in epochs.sort("epoch").group_by("split", maintain_order=True):
        marker = "o" if len(rows) <= _MAX_MARKERS else None
        dashes = _DASHES[str(split)]
        axes.plot(
            rows["epoch"].to_numpy(),
            rows[column].to_numpy(),
            color=color,
            linewidth=2.5,
            linestyle=dashes,
            marker=marker,
            markersize=5,
        )
        ends.append((str(split), float(rows[column][-1])))
    return ends


def _set_limits(axes: Axes, column: str) -> None:
    axes.margins(0.05)
    low, high = axes.get_ylim()
    missing = max(0.0, _MIN_SPANS[column] - (high - low))
    axes.set_ylim(low - missing / 2.0, high + missing / 2.0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1, steps=_TICK_STEPS))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_TICK_STEPS))
    axes.ticklabel_format(axis="y", useOffset=False)


def _draw_auc(axes: Axes, auc: HoldoutAuc) -> None:
    axes.axvline(0.5, color=theme.BLACK, linewidth=0.8)
    axes.plot([auc.low, auc.high], [0.6, 0.6], color=theme.PURPLE, linewidth=5, alpha=0.4)
    axes.plot(auc.auc, 0.6, "o", color=theme.PURPLE, markersize=11)
    half = _half([auc.auc, auc.low, auc.high])
    axes.set_xlim(0.5 - half, 0.5 + half)
    axes.set_ylim(0.0, 1.0)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=_TICK_STEPS_AROUND_HALF))
    axes.text(0.5 + 0.05 * half, 0.05, "0.5 is chance", fontsize=theme.TEXT, va="bottom")
    axes.spines["left"].set_visible(False)
    title = f"AUC {auc.auc:.2f} [{auc.low:.2f}, {auc.high:.2f}]"
    axes.set_title(title, fontsize=theme.TEXT, loc="left", color=theme.ink(theme.PURPLE), fontweight="bold")


def _draw_calibration(axes: Axes, calibration: Sequence[CalibrationBin]) -> None:
    predicted, observed = (np.array([getattr(row, name) for row in calibration]) for name in ("predicted", "observed"))
    half = _half([*predicted, *observed])
    ends = (0.5 - half, 0.5 + half)
    axes.plot(ends, ends, color=theme.BLACK, linewidth=0.8)
    axes.plot(predicted, observed, "o-", color=theme.PURPLE, linewidth=2.5, markersize=8)
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=_TICK_STEPS_AROUND_HALF))
    axes.set_title("how often the first is chosen", fontsize=theme.TEXT, loc="left")
    axes.set_xlabel("predicted")
    axes.set_ylabel("observed")


def _half(shares: Sequence[float]) -> float:
    """Half of an axis around 0.5 that holds all shares."""
    return 1.15 * max(_MIN_HALF, *(abs(share - 0.5) for share in shares))
