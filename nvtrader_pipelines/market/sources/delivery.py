"""Deliveries of a source, by its name: content that is read into rows of text."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

import polars as pl
from pydantic import Field

from nvtrader_pipelines.market.tables import DELIVERED

SERIES = "series"  # folder of outside series in `data/landing`, and the source of their files
LANDING = "landing"  # source that reads `data/landing` itself; one of another name reads its folder there
SourceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class UnreadableFile(ValueError):  # noqa: N818 - describes the file
    """Refusal of a whole file, with the name of the rule and the reason."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason


class SourceUnavailable(RuntimeError):  # noqa: N818 - describes the source
    """Failure of a source to deliver; the message says what to do."""


@dataclass(frozen=True)
class LandedFile:
    """File in the landing zone; one that is refused before it is opened has no content."""

    name: str
    content: bytes
    refusal: UnreadableFile | None = None


@dataclass(frozen=True, eq=False)
class DeliveredRows:
    """Rows of a file as text with the columns of `tables.DELIVERED`, and how its columns were understood."""

    rows: pl.DataFrame
    unused_columns: tuple[str, ...] = ()  # headers
    guessed_symbol: str | None = None  # in the file's name, and in no row


@dataclass(frozen=True)
class Delivery:
    """File of a source; its `digest` (SHA-256, hexadecimal) identifies content delivered before.

    `read()` returns the rows, and raises `UnreadableFile` if there is no row. A line that does not split into the
    header's columns is stored whole in `symbol`, so that it is refused later and not lost.
    """

    source: str
    file: str
    digest: str
    size: int  # bytes
    read: Callable[[], DeliveredRows]


def is_of_series(file: str) -> bool:
    """Whether a landed file lies in the folder of outside series."""
    return PurePosixPath(file).parts[:-1][:1] == (SERIES,)


def content_digest(content: bytes) -> str:
    """SHA-256 of the content, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def with_delivered_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with exactly the columns of `tables.DELIVERED`, null where absent."""
    columns = [
        pl.col(name).cast(kind) if name in rows.columns else pl.lit(None, kind).alias(name)
        for name, kind in DELIVERED.items()
    ]
    return rows.select(columns)
