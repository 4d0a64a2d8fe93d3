"""Landing zone: CSV and Parquet files from people and vendors."""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Literal

import polars as pl

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.sources.csv_text import read_csv_text
from nvtrader_pipelines.market.sources.delivery import Delivery, LandedFile, UnreadableFile, content_digest
from nvtrader_pipelines.market.sources.dialects import rows_from_columns, rows_from_csv


class LandingSource(Component):
    """Daily bars from the files in the landing zone, in any dialect of `dialects`."""

    kind: Literal["landing"] = "landing"

    def deliveries(self, landed: Sequence[LandedFile]) -> list[Delivery]:
        """Return one delivery per landed file, sorted by name."""
        return [file_delivery(self.kind, file) for file in sorted(landed, key=lambda file: file.name)]


def file_delivery(source: str, file: LandedFile) -> Delivery:
    """Delivery of one file's content."""
    return Delivery(source, file.name, content_digest(file.content), len(file.content), partial(_read, file))


def _read(file: LandedFile) -> pl.DataFrame:
    suffix = PurePath(file.name).suffix.lower()
    if suffix == ".csv":
        return rows_from_csv(read_csv_text(file.content), file.name)
    if suffix in {".parquet", ".pq"}:
        return _read_parquet(file)
    raise UnreadableFile("unknown_format", f"{file.name} is neither .csv nor .parquet; convert or remove it")


def _read_parquet(file: LandedFile) -> pl.DataFrame:
    if not file.content:
        raise UnreadableFile("empty_file", "the file is empty; deliver it again with its rows")
    try:
        table = pl.read_parquet(io.BytesIO(file.content), use_pyarrow=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        first_line = str(error).splitlines()[0]
        raise UnreadableFile(
            "truncated_parquet", f"the file is cut off or is no Parquet ({first_line}); deliver it again"
        ) from error
    if table.is_empty():
        raise UnreadableFile("empty_file", "the table has no rows; deliver it again with its rows")
    known = table.select(pl.col(pl.String), pl.selectors.numeric(), pl.selectors.temporal())
    header = [name.removeprefix("__index_level_0__") for name in known.columns]
    text = known.cast(pl.String).with_row_index("line", offset=1).with_columns(pl.col("line").cast(pl.Int64))
    return rows_from_columns(text, header, file.name)
