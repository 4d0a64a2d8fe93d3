"""The rules a delivered row must keep, in the order they are tried; the first one broken names the refusal."""

from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.market.calendar import CALENDAR
from nvtrader_pipelines.market.parsing import given_text
from nvtrader_pipelines.market.sources.csv_text import REPLACEMENT
from nvtrader_pipelines.market.tables import DELIVERED, NUMBERS, PRICES

SYMBOL = r"^[A-Z0-9^][A-Z0-9.\-=^]{0,19}$"
PRICE_TOLERANCE = 1e-6  # relative: vendors round close, high and low apart from each other
MAX_MOVE = 0.6  # largest one-day move of the adjusted close that needs no evidence


@dataclass(frozen=True, eq=False)
class Rule:
    """One reason to refuse a row; the expressions see the text columns and `parsed_<name>` beside them."""

    name: str
    broken: pl.Expr
    value: pl.Expr
    reason: str  # a sentence


def parsed(name: str) -> pl.Expr:
    """The parsed twin of a text column."""
    return pl.col(f"parsed_{name}")


def _first_text(broken: dict[str, pl.Expr]) -> pl.Expr:
    """`column=text` of the first column that breaks the rule."""
    return pl.coalesce(pl.when(rule).then(pl.format("{}={}", pl.lit(name), name)) for name, rule in broken.items())


def _rule_over(name: str, broken: dict[str, pl.Expr], reason: str) -> Rule:
    return Rule(name, pl.any_horizontal(broken.values()), _first_text(broken), reason)


_TEXTS = [name for name in DELIVERED if name != "line"]
_CLOSE_RANGE = pl.format("low={} close={} high={}", pl.col("low"), pl.col("close"), pl.col("high"))

ROW_RULES: tuple[Rule, ...] = (
    Rule(
        "malformed_row",
        pl.col("symbol").str.contains(r'[,;\t"]'),
        pl.col("symbol"),
        "the line does not split into as many fields as the header has",
    ),
    _rule_over(
        "wrong_encoding",
        {name: pl.col(name).str.contains(REPLACEMENT, literal=True) for name in _TEXTS},
        "the row has bytes that are not UTF-8",
    ),
    Rule(
        "odd_symbol",
        ~parsed("symbol").str.contains(SYMBOL).fill_null(value=False),
        pl.col("symbol"),
        "a symbol is 1 to 20 letters, digits and . - = ^, and starts with a letter, a digit or ^",
    ),
    Rule(
        "unparseable_date",
        parsed("session").is_null(),
        pl.col("date"),
        "the date is neither YYYY-MM-DD nor YYYYMMDD (a daily bar has no time of day)",
    ),
    Rule("future_date", parsed("session") > pl.col("today"), pl.col("date"), "the session lies in the future"),
    Rule(
        "unknown_session",
        ~pl.col("is_session"),
        pl.col("date"),
        f"the exchange ({CALENDAR}) does not trade on this day",
    ),
    Rule("missing_close", given_text("close").is_null(), pl.col("close"), "the row has no close"),
    _rule_over(
        "unparseable_number",
        {name: given_text(name).is_not_null() & parsed(name).is_null() for name in NUMBERS},
        "a price or volume is not a number (a decimal point, no thousands separator)",
    ),
    _rule_over(
        "non_finite_number",
        {name: ~parsed(name).is_finite() for name in NUMBERS},
        "a price or volume is not finite",
    ),
    _rule_over("non_positive_price", {name: parsed(name) <= 0.0 for name in PRICES}, "a price is not positive"),
    Rule("negative_volume", parsed("volume") < 0.0, pl.col("volume"), "the volume is negative"),
    Rule(
        "high_below_low",
        parsed("high") < parsed("low") * (1.0 - PRICE_TOLERANCE),
        pl.format("high={} low={}", pl.col("high"), pl.col("low")),
        "the high is below the low",
    ),
    Rule(
        "close_outside_range",
        (parsed("close") > parsed("high") * (1.0 + PRICE_TOLERANCE)).fill_null(value=False)
        | (parsed("close") < parsed("low") * (1.0 - PRICE_TOLERANCE)).fill_null(value=False),
        _CLOSE_RANGE,
        "the close lies outside low to high",
    ),
    Rule(
        "open_outside_range",
        (parsed("open") > parsed("high") * (1.0 + PRICE_TOLERANCE)).fill_null(value=False)
        | (parsed("open") < parsed("low") * (1.0 - PRICE_TOLERANCE)).fill_null(value=False),
        pl.format("low={} open={} high={}", pl.col("low"), pl.col("open"), pl.col("high")),
        "the open lies outside low to high",
    ),
)


def first_broken(rules: tuple[Rule, ...]) -> list[pl.Expr]:
    """Columns `rule`, `value` and `reason` of the first broken rule; `rule` is null where all are kept."""
    return [
        pl.coalesce(pl.when(rule.broken).then(pl.lit(rule.name)) for rule in rules).alias("rule"),
        pl.coalesce(pl.when(rule.broken).then(rule.value.fill_null("")) for rule in rules).alias("value"),
        pl.coalesce(pl.when(rule.broken).then(pl.lit(rule.reason)) for rule in rules).alias("reason"),
    ]
