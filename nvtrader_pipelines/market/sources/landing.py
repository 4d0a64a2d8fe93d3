"""Landing zone: CSV and Parquet files from people and vendors."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Literal

import polars as pl

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.calendar import CalendarName
from nvtrader_pipelines.market.sources.csv_text import MAX_HEADER, read_csv_text
from nvtrader_pipelines.market.sources.delivery import (
    LANDING,
    DeliveredRows,
    Delivery,
    LandedFile,
    SourceName,
    UnreadableFile,
    content_digest,
)
from nvtrader_pipelines.market.sources.dialects import known_column, rows_from_columns, rows_from_csv

CSV, PARQUET = frozenset({".csv", ".txt"}), frozenset({".parquet", ".pq"})
MAX_BYTES = 256 << 20  # of a file; reading a CSV takes about ten times its size in memory
MAX_ROWS = 20_000_000  # of a Parquet file, which may hold many rows in few bytes


class LandingSource(Component):
    """Daily bars from files in the landing zone, in any dialect of `dialects`.

    The source `landing` reads `data/landing`, and one of another name its folder there, such as `data/landing/coins`.
    """

    kind: Literal["landing"] = "landing"
    name: SourceName = LANDING
    calendar: CalendarName = "XNYS"

    def deliveries(self, landed: Sequence[LandedFile]) -> list[Delivery]:
        """Return one delivery per file of the source, sorted by name."""
        return [file_delivery(self.name, file) for file in sorted(landed, key=lambda file: file.name)]


def file_delivery(source: str, file: LandedFile) -> Delivery:
    """Delivery of a file, by the digest of its content, or of its refusal if it is not opened."""
    digest = content_digest(file.refusal.reason.encode() if file.refusal else file.content)
    return Delivery(source, file.name, digest, len(file.content), partial(_read, file))


def early_refusal(name: str, n_bytes: int) -> UnreadableFile | None:
    """Refusal of a file by its name and size, before it is opened; None if it may be read."""
    if _suffix(name) not in CSV | PARQUET:
        return UnreadableFile("unknown_format", f"{name} must be .csv, .txt or .parquet; convert or remove it")
    if n_bytes > MAX_BYTES:
        return UnreadableFile(
            "large_file",
            f"a file must have at most {MAX_BYTES >> 20} MiB, but {name} has {n_bytes >> 20} MiB; split it by symbol",
        )
    return None


def read_header(file: LandedFile) -> list[str]:
    """Read the first cells of a file without its rows.

    Raises:
        UnreadableFile: if there is no header.
    """
    if _is_parquet(file):
        with _parquet_errors():
            return list(pl.read_parquet_schema(io.BytesIO(file.content)))
    return read_csv_text(file.content[:MAX_HEADER]).header()[0]


def read_columns(file: LandedFile) -> tuple[list[str], pl.DataFrame, pl.DataFrame]:
    """Read header, rows as `line` and a column of text per cell, and lines that do not split into these.

    Raises:
        UnreadableFile: if the file cannot be read, or a column of bars holds no text, numbers or dates.
    """
    if _is_parquet(file):
        header, fields = _parquet_columns(file)
        return header, fields, fields.clear()
    text = read_csv_text(file.content)
    return text.header()[0], *text.body(1)


def _read(file: LandedFile) -> DeliveredRows:
    if _is_parquet(file):
        header, fields = _parquet_columns(file)
        return rows_from_columns(fields, header, file.name)
    return rows_from_csv(read_csv_text(file.content), file.name)


def _is_parquet(file: LandedFile) -> bool:
    """Whether a file is Parquet, else CSV; raises UnreadableFile if it is refused before it is opened."""
    refusal = file.refusal or early_refusal(file.name, len(file.content))
    if refusal:
        raise refusal
    return _suffix(file.name) in PARQUET


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower()


@contextlib.contextmanager
def _parquet_errors() -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        first_line = str(error).splitlines()[0]
        raise UnreadableFile(
            "truncated_parquet", f"the file is cut off or is no Parquet ({first_line}); deliver it again"
        ) from error


def _parquet_columns(file: LandedFile) -> tuple[list[str], pl.DataFrame]:
    if not file.content:
        raise UnreadableFile("empty_file", "the file is empty; deliver it again with its rows")
    with _parquet_errors():
        _require_few_rows(pl.scan_parquet(io.BytesIO(file.content)).select(pl.len()).collect().item())
        table = pl.read_parquet(io.BytesIO(file.content), use_pyarrow=False)
    if table.is_empty():
        raise UnreadableFile("empty_file", "the table has no rows; deliver it again with its rows")
    header = [name.removeprefix("__index_level_0__") for name in table.columns]
    text = [
        _as_text(column, cell).alias(f"column_{i}") for i, (column, cell) in enumerate(zip(table, header, strict=True))
    ]
    lines = pl.int_range(1, table.height + 1, eager=True).alias("line")
    return header, pl.DataFrame([lines, *text])


def _as_text(column: pl.Series, cell: str) -> pl.Series:
    """Cast a column to text; one that holds none is refused if its header `cell` is known, else null."""
    kind, known = column.dtype, known_column(cell)
    is_castable = kind not in (pl.Boolean, pl.Duration) and not kind.is_nested()
    if is_castable and not (known == "symbol" and kind.is_float()):  # 600000.0
        with contextlib.suppress(pl.exceptions.PolarsError):  # bytes that are not UTF-8
            return column.cast(pl.String)
    if known:
        raise UnreadableFile(
            "unreadable_column",
            f"column {column.name!r} must hold text, numbers or dates, to be read as {known}, but its type is {kind}"
            f"{', not all of it UTF-8' if kind == pl.Binary else ''}; cast it to text and deliver the table again",
        )
    return pl.Series(column.name, [None] * column.len(), pl.String)


def _require_few_rows(n_rows: int) -> None:
    if n_rows > MAX_ROWS:
        raise UnreadableFile(
            "large_file", f"a Parquet file must have at most {MAX_ROWS:,} rows, but has {n_rows:,}; split it by symbol"
        )
