"""Parsers of delivered text, and rules for rows in order; a refused row names the first it breaks."""

from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.market.calendar import CALENDAR
from nvtrader_pipelines.market.sources.csv_text import REPLACEMENT
from nvtrader_pipelines.market.tables import DELIVERED, NUMBERS, PRICES

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


SYMBOL = r"^[A-Z0-9^][A-Z0-9.\-=^]{0,19}$"
PRICE_TOLERANCE = 1e-6  # relative: vendors round close, high and low independently


@dataclass(frozen=True, eq=False)
class Rule:
    """Rule for rows; expressions read text columns and their parsed twins `parsed_<name>`."""

    name: str
    broken: pl.Expr
    value: pl.Expr
    reason: str  # why the row is refused


def parsed_column(name: str) -> pl.Expr:
    """Parsed twin of a text column."""
    return pl.col(f"parsed_{name}")


def _first_offending_text(broken: dict[str, pl.Expr]) -> pl.Expr:
    """`column=text` of the first column that breaks the rule."""
    return pl.coalesce(pl.when(rule).then(pl.format("{}={}", pl.lit(name), name)) for name, rule in broken.items())


def _rule_for_columns(name: str, broken: dict[str, pl.Expr], reason: str) -> Rule:
    return Rule(name, pl.any_horizontal(broken.values()), _first_offending_text(broken), reason)


_TEXTS = [name for name in DELIVERED if name != "line"]
_CLOSE_RANGE = pl.format("low={} close={} high={}", pl.col("low"), pl.col("close"), pl.col("high"))

ROW_RULES: tuple[Rule, ...] = (
    Rule(
        "malformed_row",
        pl.col("symbol").str.contains(r'[,;\t"]'),
        pl.col("symbol"),
        "the line does not split into as many fields as the header has",
    ),
    _rule_for_columns(
        "wrong_encoding",
        {name: pl.col(name).str.contains(REPLACEMENT, literal=True) for name in _TEXTS},
        "the row has bytes that are not UTF-8",
    ),
    Rule(
        "odd_symbol",
        ~parsed_column("symbol").str.contains(SYMBOL).fill_null(value=False),
        pl.col("symbol"),
        "a symbol is 1 to 20 letters, digits and . - = ^, and starts with a letter, a digit or ^",
    ),
    Rule(
        "unparseable_date",
        parsed_column("session").is_null(),
        pl.col("date"),
        "the date is neither YYYY-MM-DD nor YYYYMMDD (a daily bar has no time of day)",
    ),
    Rule("future_date", parsed_column("session") > pl.col("today"), pl.col("date"), "the session lies in the future"),
    Rule(
        "unknown_session",
        ~pl.col("is_session"),
        pl.col("date"),
        f"the exchange ({CALENDAR}) does not trade on this day",
    ),
    Rule("missing_close", strip_text("close").is_null(), pl.col("close"), "the row has no close"),
    _rule_for_columns(
        "unparseable_number",
        {name: strip_text(name).is_not_null() & parsed_column(name).is_null() for name in NUMBERS},
        "a price or volume is not a number (a decimal point, no thousands separator)",
    ),
    _rule_for_columns(
        "non_finite_number",
        {name: ~parsed_column(name).is_finite() for name in NUMBERS},
        "a price or volume is not finite",
    ),
    _rule_for_columns(
        "non_positive_price", {name: parsed_column(name) <= 0.0 for name in PRICES}, "a price is not positive"
    ),
    Rule("negative_volume", parsed_column("volume") < 0.0, pl.col("volume"), "the volume is negative"),
    Rule(
        "high_below_low",
        parsed_column("high") < parsed_column("low") * (1.0 - PRICE_TOLERANCE),
        pl.format("high={} low={}", pl.col("high"), pl.col("low")),
        "the high is below the low",
    ),
    Rule(
        "close_outside_range",
        (parsed_column("close") > parsed_column("high") * (1.0 + PRICE_TOLERANCE)).fill_null(value=False)
        | (parsed_column("close") < parsed_column("low") * (1.0 - PRICE_TOLERANCE)).fill_null(value=False),
        _CLOSE_RANGE,
        "the close lies outside low to high",
    ),
    Rule(
        "open_outside_range",
        (parsed_column("open") > parsed_column("high") * (1.0 + PRICE_TOLERANCE)).fill_null(value=False)
        | (parsed_column("open") < parsed_column("low") * (1.0 - PRICE_TOLERANCE)).fill_null(value=False),
        pl.format("low={} open={} high={}", pl.col("low"), pl.col("open"), pl.col("high")),
        "the open lies outside low to high",
    ),
)


def first_broken_rule(rules: tuple[Rule, ...]) -> list[pl.Expr]:
    """Columns `rule`, `value` and `reason` of the first broken rule; null where none is broken."""
    return [
        pl.coalesce(pl.when(rule.broken).then(pl.lit(rule.name)) for rule in rules).alias("rule"),
        pl.coalesce(pl.when(rule.broken).then(rule.value.fill_null("")) for rule in rules).alias("value"),
        pl.coalesce(pl.when(rule.broken).then(pl.lit(rule.reason)) for rule in rules).alias("reason"),
    ]
