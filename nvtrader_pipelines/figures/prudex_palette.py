"""Policies shown in the figures of PRUDEX-Compass, and their styles."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.colors import to_hex

from nvtrader_pipelines.evaluation.prudex.measures import OF_AXIS
from nvtrader_pipelines.evaluation.prudex.record import BASELINE, ENSEMBLE, REFERENCE
from nvtrader_pipelines.figures import theme
from nvtrader_pipelines.figures.canvas import readable

PALETTE = (theme.BLUE, theme.ORANGE, theme.GREEN, theme.VERMILION, theme.PURPLE, theme.SKY)
_DASHES: tuple[Any, ...] = ("--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
_DARKEST, _LIGHTEST = 0.30, 0.72  # greys of baselines


@dataclass(frozen=True)
class Style:
    """Style of a policy."""

    policy: str
    kind: str
    color: str
    dashes: Any  # of its line
    shade: str  # of its bars; baselines are grey

    @property
    def label(self) -> str:
        """Name of the policy, shortened to fit beside a figure."""
        return f"1/N ({readable(self.policy, 20)})" if self.policy == REFERENCE else readable(self.policy, 19)


def experiment_colors(table: pl.DataFrame) -> dict[str, str]:
    """Colors of the six experiments in PRUDEX with the highest mean score over axes, best first."""
    means = (
        table.filter(pl.col("measure") == OF_AXIS, pl.col("kind") == ENSEMBLE)
        .group_by("policy")
        .agg(pl.col("score").mean().fill_null(0.0))
        .sort("score", "policy", descending=[True, False])
    )
    return dict(zip(means["policy"].head(len(PALETTE)), PALETTE, strict=False))


def styles(table: pl.DataFrame) -> list[Style]:
    """Styles of the shown experiments, of 1/N, and of up to six other baselines by name."""
    baselines = table.filter(pl.col("kind") == BASELINE)["policy"].unique().sort().to_list()
    others = [name for name in baselines if name != REFERENCE][: len(_DASHES)]
    greys = [to_hex((grey,) * 3) for grey in np.linspace(_DARKEST, _LIGHTEST, len(others))]
    return [
        *(Style(name, ENSEMBLE, color, "-", color) for name, color in experiment_colors(table).items()),
        *(Style(name, BASELINE, theme.BLACK, "--", theme.BLACK) for name in baselines if name == REFERENCE),
        *(Style(name, BASELINE, theme.GREY, *how) for name, *how in zip(others, _DASHES, greys, strict=False)),
    ]


def with_hidden(table: pl.DataFrame, note: str | None) -> str | None:
    """Prepend the number of experiments left out to the note."""
    n_hidden = table.filter(pl.col("kind") == ENSEMBLE)["policy"].n_unique() - len(PALETTE)
    hidden = f"{n_hidden} experiments with lower scores are in evaluation.prudex only" if n_hidden > 0 else None
    return "; ".join(filter(None, (hidden, note))) or None
