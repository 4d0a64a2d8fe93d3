"""Document of the ingested market: files, symbols, refusals and warnings."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import polars as pl

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.runs.market_summary import MarketSummary


class LandedFile(Document):
    """Delivered file, with counts of its rows."""

    source: str
    file: str
    n_symbols: int
    n_rows: int
    n_kept: int
    n_refused: int
    n_repeated: int
    reason: str | None  # why the whole file was refused
    guessed_symbol: str | None  # in the file's name; null if the rows name their symbols
    unused_columns: tuple[str, ...]


class LandedSymbol(Document):
    """Symbol, with counts of its rows."""

    source: str
    symbol: str
    first: date | None  # session; null if no row was kept
    last: date | None
    n_kept: int
    n_missing: int  # sessions between the two without a bar
    n_refused: int
    refused_share: float  # of the kept and the refused rows
    coverage: tuple[float, ...] | None  # share of sessions with a bar, by year


class RefusalReason(Document):
    """Rule that rows break, with the first of them."""

    rule: str
    n_rows: int
    reason: str
    file: str
    line: int  # 0 for the whole file
    value: str | None  # as delivered


class MarketDocument(Document):
    """Landed rows, each kept, refused or a repetition, and warnings."""

    files: tuple[LandedFile, ...]
    symbols: tuple[LandedSymbol, ...]  # largest share of refused rows first
    reasons: tuple[RefusalReason, ...]  # most frequent first
    first_year: int | None  # of the coverage
    warnings: tuple[str, ...]
    notes: tuple[str, ...]  # guessed symbols, columns that are not read, usable sessions, missing sectors
    experiments: tuple[str, ...]  # warnings on experiments
    has_new_bars: bool  # whether anything was ingested just now


def market_document(summary: MarketSummary, experiments: Sequence[str], *, has_new_bars: bool) -> MarketDocument:
    """Describe a market and the warnings on its experiments."""
    facts: dict[str, Any] = {
        name: value.to_dicts() if isinstance(value, pl.DataFrame) else value for name, value in vars(summary).items()
    }
    return MarketDocument.model_validate({**facts, "experiments": experiments, "has_new_bars": has_new_bars})
