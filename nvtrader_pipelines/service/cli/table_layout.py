"""Layout of tables: column widths, and the columns that a terminal has room for."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

PADDING = 2  # characters beside each cell
MIN_PROSE = 24  # width to which sentences, and words too long for the table, are wrapped


@dataclass(frozen=True)
class CellTable:
    """Formatted cells by row; columns come in order of importance, the most important first."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Collection[int] = ()  # positions of columns aligned to the right
    bold: Collection[int] = ()  # positions of rows that stand out

    def fit_widths(self, room: int) -> list[int]:
        """Widths of the leading columns that fit into `room` characters; at least one.

        Numbers, dates and names stay whole; headers and sentences are wrapped at words before a column is left out.
        """
        cells = list(zip(self.columns, *self.rows, strict=True))
        natural = [max(map(_width, column)) for column in cells]
        least = [_least_width(column, room) for column in cells]
        while len(least) > 1 and sum(least) + PADDING * len(least) > room:
            least.pop()
        least[0] = min(least[0], max(room - PADDING, 1))
        return _grow(least, natural, room - PADDING * len(least))


def _width(cell: str) -> int:
    return max(map(cell_len, cell.splitlines()), default=0)


def _least_width(column: Sequence[str], room: int) -> int:
    """Smallest width of a column: the longest word, and room for a line of a sentence."""
    header, *cells = column
    longest = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
    if longest > max(room - MIN_PROSE, MIN_PROSE):  # a path, a digest: folded
        longest = MIN_PROSE
    prose = min(max(map(_width, cells), default=0), MIN_PROSE)
    return max(longest, prose, max(map(cell_len, header.split()), default=0))


def _grow(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """Share the room that is left among the columns, those that need least first."""
    widths, left = list(least), room - sum(least)
    wanting = sorted((i for i in range(len(widths)) if natural[i] > widths[i]), key=lambda i: natural[i] - widths[i])
    for n, i in enumerate(wanting):
        more = min(natural[i] - widths[i], max(left, 0) // (len(wanting) - n))
        widths[i] += more
        left -= more
    return widths
