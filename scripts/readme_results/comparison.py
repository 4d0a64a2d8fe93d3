"""The README's table of results compared with the rows of a run."""

import re
from collections.abc import Iterator
from dataclasses import astuple
from typing import NamedTuple

from nvtrader_pipelines.evaluation.formats import MINUS
from nvtrader_pipelines.evaluation.timing_luck import opening_range
from scripts.readme_results.markdown import BEGIN, END, label
from scripts.readme_results.results import AccountRow, Results

NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
Figures = tuple[float, ...]


class Mismatch(NamedTuple):
    """Cell of the table that a run does not give."""

    account: str
    column: str
    printed: str
    figures: Figures  # of the run, in the unit of the column


def find_mismatches(text: str, results: Results) -> list[Mismatch]:
    """Find the cells of a page's table that differ by more than rounding and processors explain."""
    block = text.partition(BEGIN)[2].partition(END)[0]
    lines = [line.split("|")[1:-1] for line in block.splitlines() if line.startswith("|")]
    (_, *columns), _, *cells = [[cell.strip() for cell in line] for line in lines]
    printed = {name: row for name, *row in cells}
    rows = {label(row.policy, is_learned=row.is_learned): list(_columns(row)) for row in results.accounts}
    no_text, no_figures = [""] * len(columns), [((), 0.0)] * len(columns)
    return [
        Mismatch(name, column, cell, figures)
        for name in printed | rows
        for column, cell, (figures, tolerance) in zip(
            columns, printed.get(name, no_text), rows.get(name, no_figures), strict=True
        )
        if not _agrees(cell, figures, tolerance)
    ]


def _columns(row: AccountRow) -> Iterator[tuple[Figures, float]]:
    """Figures of the cells of an account, with how much they differ between processors."""
    tolerance = row.tolerance
    yield astuple(row.sharpe), tolerance.sharpe
    yield opening_range(row.openings) or (), tolerance.sharpe
    yield (100.0 * row.cagr,), 100.0 * tolerance.cagr
    yield (100.0 * row.max_drawdown,), 100.0 * tolerance.max_drawdown
    yield (row.turnover_per_year,), tolerance.turnover_per_year
    yield (100.0 * row.cost_per_year,), 100.0 * tolerance.cost_per_year
    yield astuple(row.difference) if row.difference else (), tolerance.sharpe


def _agrees(cell: str, figures: Figures, tolerance: float) -> bool:
    """Whether the numbers of a cell are the figures, to half a unit of the last digit and the tolerance."""
    numbers = NUMBER.findall(cell.replace(MINUS, "-"))
    return len(numbers) == len(figures) and all(
        abs(float(number) - figure) <= 0.5 * 10.0 ** -len(number.partition(".")[2]) + tolerance
        for number, figure in zip(numbers, figures, strict=True)
    )
