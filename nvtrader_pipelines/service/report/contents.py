"""Contents of the report: grids of cells, plots, and the parts that hold them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

RUN = "nvtrader materialize"


@dataclass(frozen=True)
class Grid:
    """Table of text cells; the first column names the rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: Sequence[bool] = ()  # rows in bold
    groups: Sequence[str] = ()  # heading above consecutive rows that share it; empty for none
    collapsed: Sequence[bool] = ()  # rows that are hidden at first
    shades: Sequence[Sequence[float]] = ()  # of each cell, from -1 (loss) to 1 (gain)
    is_open: bool = True

    @property
    def n_collapsed(self) -> int:
        """Number of rows that are hidden at first."""
        return sum(self.collapsed)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Rows with everything the page needs to draw them."""
        n = len(self.rows)
        groups = self.groups or [""] * n
        is_new = [True, *(one != two for one, two in pairwise(groups))]
        return [
            {
                "cells": list(zip(row, shades, strict=True)),
                "is_strong": strong,
                "is_collapsed": collapsed,
                "is_variant": bool(group),
                "heading": group if new else "",
            }
            for row, shades, strong, collapsed, group, new in zip(
                self.rows,
                self.shades or [[0.0] * len(self.columns)] * n,
                self.strong or [False] * n,
                self.collapsed or [False] * n,
                groups,
                is_new[:n],
                strict=True,
            )
        ]


@dataclass(frozen=True)
class Plot:
    """Picture with its title and a caption in words."""

    title: str
    caption: str
    svg: bytes | Path  # content, or a file that holds it

    def read_svg(self) -> bytes:
        """Content of the picture."""
        return self.svg.read_bytes() if isinstance(self.svg, Path) else self.svg


@dataclass(frozen=True)
class Part:
    """Part of the report; an empty one shows the command that fills it."""

    name: str
    title: str
    lead: str
    grids: Sequence[Grid] = ()
    plots: Sequence[Plot] = ()
    more_plots: Sequence[Plot] = ()  # shown on request
    parts: Sequence["Part"] = ()  # one per experiment, the best first and open
    sentences: Sequence[str] = ()
    command: str = RUN  # command that fills the part; empty if the part may be empty

    @property
    def is_missing(self) -> bool:
        """Whether the part is empty and should not be."""
        filled = any(grid.rows for grid in self.grids) or self.plots or self.parts or self.sentences
        return bool(self.command) and not filled
