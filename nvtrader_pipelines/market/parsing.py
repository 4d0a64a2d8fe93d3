"""Parsers of delivered text as polars expressions, null where parsing fails."""

import polars as pl

# A day, or midnight of that day with any zone; a time of day would mean an intraday bar.
_DAY = r"^(\d{4}-\d{2}-\d{2})(?:[T ]00:00(?::00(?:\.0+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?$"
_COMPACT_DAY = r"^(\d{8})$"


def parse_date() -> pl.Expr:
    """Parse the day in `2020-01-31`, `2020-01-31 00:00:00-05:00` or `20200131`, else null."""
    text = pl.col("date").str.strip_chars()
    day = text.str.extract(_DAY, 1).str.to_date("%Y-%m-%d", strict=False)
    return pl.coalesce(day, text.str.extract(_COMPACT_DAY, 1).str.to_date("%Y%m%d", strict=False))


def parse_number(column: str) -> pl.Expr:
    """Parse the number in a column of text, else null; `NaN` and `inf` are parsed, too."""
    return strip_text(column).cast(pl.Float64, strict=False)


def strip_text(column: str) -> pl.Expr:
    """Strip surrounding blanks; null if nothing is left."""
    text = pl.col(column).str.strip_chars()
    return pl.when(text != "").then(text)


def parse_symbol() -> pl.Expr:
    """Strip surrounding blanks and capitalize."""
    return pl.col("symbol").str.strip_chars().str.to_uppercase()
