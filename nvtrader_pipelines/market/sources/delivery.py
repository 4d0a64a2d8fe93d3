"""What a source hands over: named content that can be read into rows of text."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.market.tables import DELIVERED


class UnreadableFile(ValueError):  # noqa: N818 - says what the file is
    """A whole file is refused, by a named rule and for a reason told in one sentence."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason


class SourceUnavailable(RuntimeError):  # noqa: N818 - says what the source is
    """A source cannot deliver now; the message says in one sentence what to do."""


@dataclass(frozen=True)
class LandedFile:
    """A file found in the landing zone, by name and content."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Delivery:
    """One file of one source; `digest` (SHA-256, hexadecimal) tells whether it was seen before.

    `read()` returns the rows as text with the columns of `tables.DELIVERED`; it raises `UnreadableFile`
    where no row can be found. A line that does not split into the header's columns is kept whole in
    `symbol`, so that it is refused later and not lost.
    """

    source: str
    file: str
    digest: str
    size: int  # bytes
    read: Callable[[], pl.DataFrame]


def content_digest(content: bytes) -> str:
    """SHA-256 of the content, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def as_delivered(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with exactly the columns of `tables.DELIVERED`, null where a column is absent."""
    columns = [
        pl.col(name).cast(kind) if name in rows.columns else pl.lit(None, kind).alias(name)
        for name, kind in DELIVERED.items()
    ]
    return rows.select(columns)
