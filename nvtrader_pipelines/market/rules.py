"""Parsers of delivered text, and rules for rows in order; a refused row names the first it breaks."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.market.calendar import ALL_NEW_YORK, NEW_YORK, Calendars, TradingCalendar
from nvtrader_pipelines.market.sources.csv_text import REPLACEMENT
from nvtrader_pipelines.market.sources.file_names import PAIR, SYMBOL
from nvtrader_pipelines.market.tables import DELIVERED, NUMBERS, PRICES

# A day, or its first or last moment with any zone; another time of day would mean an intraday bar.
_MOMENT = r"(?:00:00(?::00(?:\.0+)?)?|23:59:59(?:\.9+)?)"
_DAY = rf"^(\d{{4}}-\d{{2}}-\d{{2}})(?:[T ]{_MOMENT}(?:Z| UTC|[+-]\d{{2}}:?\d{{2}})?)?$"
_COMPACT_DAY = r"^(\d{8})$"
_SLASHED_DAY = r"^(\d{1,2})/(\d{1,2})/(\d{4})$"
# Jan 31, 2020; Jan 31 2020; 31-Jan-20 (before %Y, which would read the year 20); 31-Jan-2020
_NAMED_MONTHS = ("%b %d, %Y", "%b %d %Y", "%d-%b-%y", "%d-%b-%Y")
_TIMED_DAY = r"^(\d{4}-\d{2}-\d{2}|\d{8})[T ]\d"
_MICROSECONDS = {r"^(\d{9,10})$": 1_000_000, r"^(\d{13})$": 1000, r"^(\d{16})$": 1}  # per unit of a time since 1970
_MICROSECONDS_PER_DAY = 86_400_000_000
_ZONED = ("%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%dT%H:%M%z")
_MONTHS = 12
_GROUPED = r"^[-+]?\d{1,3}(?:,\d{3})+\.\d+$|^[-+]?\d{1,3}(?:,\d{3}){2,}$"  # a lone comma may be a decimal one
_GROUPED_COUNT = r"^\d{1,3}(?:,\d{3})+$"
_COUNT_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9}


def parse_date(calendars: Calendars = ALL_NEW_YORK, file: tuple[str, ...] = ()) -> pl.Expr:
    """Parse the day in a delivered date, else null.

    It may be `2020-01-31`, `20200131`, `Jan 31, 2020` or `31-Jan-20`, the day's first or last moment, such as
    `2020-01-31 00:00:00-05:00`, or its midnight (UTC) in seconds, milli- or microseconds since 1970. Any other moment
    with a zone is parsed if it is the first or last of a day in the time zone of its source's calendar. `01/31/2020`
    and `31/01/2020` are parsed if the file's dates agree on the place of the month.

    Args:
        calendars: calendars by `source`.
        file: columns that identify a file; empty if all rows are of one file.
    """
    text = pl.col("date").str.strip_chars()
    microseconds = _since_1970(text)
    moment = _local_moment(text, calendars)
    is_edge = (moment.dt.time() == dt.time(0)) | (moment.dt.time() >= dt.time(23, 59, 59))
    days = [
        text.str.extract(_DAY, 1).str.to_date("%Y-%m-%d", strict=False),
        text.str.extract(_COMPACT_DAY, 1).str.to_date("%Y%m%d", strict=False),
        *(text.str.to_date(form, strict=False) for form in _NAMED_MONTHS),
        pl.when(microseconds % _MICROSECONDS_PER_DAY == 0).then(microseconds.cast(pl.Datetime("us")).dt.date()),
        pl.when(is_edge).then(moment.dt.date()),
        _parse_slashed(text, file),
    ]
    return pl.coalesce(days)


def parse_day_of_moment() -> pl.Expr:
    """Parse the day in a delivered date with any time of day, else null."""
    text = pl.col("date").str.strip_chars()
    day = text.str.extract(_TIMED_DAY, 1).str.replace_all("-", "", literal=True).str.to_date("%Y%m%d", strict=False)
    return pl.coalesce(day, _since_1970(text).cast(pl.Datetime("us")).dt.date())


def parse_local_day(calendars: Calendars) -> pl.Expr:
    """Parse the day of a moment with a zone in the time zone of its source's calendar, else null."""
    return _local_moment(pl.col("date").str.strip_chars(), calendars).dt.date()


def _since_1970(text: pl.Expr) -> pl.Expr:
    """Microseconds since 1970 of a time in seconds, milli- or microseconds."""
    return pl.coalesce(text.str.extract(pattern, 1).cast(pl.Int64) * unit for pattern, unit in _MICROSECONDS.items())


def _local_moment(text: pl.Expr, calendars: Calendars) -> pl.Expr:
    """Moment of a stamp with a zone, or since 1970, in the time zone of its source's calendar."""
    timed = pl.when(text.str.len_bytes() > len("2020-01-31T05:00")).then(text)  # few, and slow to parse
    stamp = timed.str.replace(r" ?(?:Z|UTC)$", "+00:00").str.replace(" ", "T", literal=True)
    zoned = (stamp.str.to_datetime(form, time_unit="us", time_zone="UTC", strict=False) for form in _ZONED)
    instant = pl.coalesce(*zoned, _since_1970(text).cast(pl.Datetime("us", "UTC")))
    return _of_calendar(
        calendars, lambda calendar: instant.dt.convert_time_zone(calendar.time_zone.key).dt.replace_time_zone(None)
    )


def _parse_slashed(text: pl.Expr, file: tuple[str, ...]) -> pl.Expr:
    first, second = (text.str.extract(_SLASHED_DAY, place).cast(pl.Int32) for place in (1, 2))
    largest = [day.max().over(file) if file else day.max() for day in (first, second)]
    is_month_first = (largest[0] <= _MONTHS) & (largest[1] > _MONTHS)
    is_day_first = (largest[1] <= _MONTHS) & (largest[0] > _MONTHS)
    day = pl.when(is_month_first).then(text.str.to_date("%m/%d/%Y", strict=False))
    return day.when(is_day_first).then(text.str.to_date("%d/%m/%Y", strict=False))


def is_session(column: str, calendars: Calendars) -> pl.Expr:
    """Whether a day is a session of its row's source."""
    day = pl.col(column)
    return _of_calendar(calendars, lambda calendar: day.is_in(pl.Series(calendar.all_sessions()).implode()))


def calendar_name(calendars: Calendars) -> pl.Expr:
    """Name of the calendar of a row's source."""
    return _of_calendar(calendars, lambda calendar: pl.lit(calendar.name))


def add_time_limits(bars: pl.DataFrame, now: dt.datetime, calendars: Calendars) -> pl.DataFrame:
    """Add the current day and the last session that has ended of each row's source."""
    return bars.with_columns(
        current_day=_of_calendar(calendars, lambda calendar: pl.lit(calendar.current_day(now))),
        last_ended=_of_calendar(calendars, lambda calendar: pl.lit(calendar.last_ended(now))),
    )


def _of_calendar(calendars: Calendars, expression: Callable[[TradingCalendar], pl.Expr]) -> pl.Expr:
    """Value of an expression for the calendar of each row's source."""
    value = expression(NEW_YORK)
    for source, calendar in calendars.by_source.items():
        value = pl.when(pl.col("source") == source).then(expression(calendar)).otherwise(value)
    return value


def parse_number(column: str) -> pl.Expr:
    """Parse the number in a column of text, else null; `NaN` and `inf` are parsed, too.

    A price may have a leading `$` and, where it cannot be a decimal comma, commas between thousands; a volume may also
    end in K, M or B.
    """
    text = strip_text(column)
    bare = text.str.strip_prefix("$")
    ungrouped = pl.when(bare.str.contains(_GROUPED)).then(bare.str.replace_all(",", "", literal=True))
    numbers = [
        text.cast(pl.Float64, strict=False),
        *(text.cast(pl.Float64, strict=False) for text in (bare, ungrouped)),
    ]
    if column == "volume":
        count = pl.when(text.str.contains(_GROUPED_COUNT)).then(text.str.replace_all(",", "", literal=True))
        scaled = text.str.extract(r"^([\d.]+)[KMB]$", 1).cast(pl.Float64, strict=False)
        unit = text.str.slice(-1).replace_strict(_COUNT_UNITS, default=None, return_dtype=pl.Float64)
        numbers += [count.cast(pl.Float64, strict=False), scaled * unit]
    return pl.coalesce(numbers)


def strip_text(column: str) -> pl.Expr:
    """Strip surrounding blanks; null if nothing is left, or a volume is `-` or `N/A`."""
    text = pl.col(column).str.strip_chars()
    is_missing = text.is_in(["", "-", "N/A"]) if column == "volume" else text == ""
    return pl.when(~is_missing).then(text)


def parse_symbol() -> pl.Expr:
    """Strip surrounding blanks and capitalize; a pair of currencies such as `EUR/USD` is joined to `EURUSD`."""
    return pl.col("symbol").str.strip_chars().str.to_uppercase().str.replace(f"^{PAIR}$", "${1}${2}")


PRICE_TOLERANCE = 1e-6  # relative: vendors round close, high and low independently
MIN_PRICE, MAX_PRICE = 1e-10, 1e12  # adjusted closes of funds with many reverse splits exceed 1e10
MAX_VOLUME = 1e18
SESSION_NOT_ENDED = "session_not_ended"  # no fault of the row, which is clean once the session has ended
MAX_FACTOR = 1000.0  # between a price and the close of its bar, or two closes in a row
_INTRADAY = ("open", "high", "low")


@dataclass(frozen=True, eq=False)
class Rule:
    """Rule for rows; expressions read text columns and their parsed twins `parsed_<name>`."""

    name: str
    broken: pl.Expr
    value: pl.Expr
    reason: str  # why the row is refused; `{calendar}` becomes the name of the source's calendar


def is_implausible_move(price: pl.Expr, before: pl.Expr) -> pl.Expr:
    """Whether a price is more than 1000 times another, or less than a thousandth."""
    return (price > before * MAX_FACTOR) | (price < before / MAX_FACTOR)


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
        "a symbol is 1 to 20 letters, digits and . - = ^, and starts with a letter, a digit or ^; "
        "a pair such as EUR/USD is stored as EURUSD",
    ),
    Rule(
        "intraday_bar",
        parsed_column("session").is_null() & pl.col("moment_day").is_not_null(),
        pl.col("date"),
        "intraday bars are not supported yet: a bar is of a whole day, so its date has no time of day but midnight, "
        "in its own time zone or the calendar's, and its day no other bar; deliver daily bars",
    ),
    Rule(
        "unparseable_date",
        parsed_column("session").is_null(),
        pl.col("date"),
        "the date is neither YYYY-MM-DD nor YYYYMMDD, nor MM/DD/YYYY or DD/MM/YYYY in a file whose dates show which; "
        "write it as YYYY-MM-DD",
    ),
    Rule(
        "future_date",
        parsed_column("session") > pl.col("current_day"),
        pl.col("date"),
        "the session lies in the future",
    ),
    Rule(
        "unknown_session",
        ~pl.col("is_session"),
        pl.col("date"),
        "the source's calendar {calendar} has no session on this day; if the market trades on it, name another "
        "calendar in data/market.yaml",
    ),
    Rule(
        SESSION_NOT_ENDED,
        parsed_column("session") > pl.col("last_ended"),
        parsed_column("session").cast(pl.String),
        "the session of calendar {calendar} has not ended; the next ingest or refine after its close takes the row",
    ),
    Rule("missing_close", strip_text("close").is_null(), pl.col("close"), "the row has no close"),
    _rule_for_columns(
        "unparseable_number",
        {name: strip_text(name).is_not_null() & parsed_column(name).is_null() for name in NUMBERS},
        "a price or volume is not a number (a decimal point, no thousands separator)",
    ),
    Rule(
        "missing_adjusted_close",
        parsed_column("adj_close").is_null(),
        pl.col("adj_close"),
        "no adjusted close, while other rows of the symbol have one",
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
    _rule_for_columns(
        "implausible_number",
        {
            **{name: ~parsed_column(name).is_between(MIN_PRICE, MAX_PRICE) for name in PRICES},
            **{name: is_implausible_move(parsed_column(name), parsed_column("close")) for name in _INTRADAY},
            "volume": parsed_column("volume") > MAX_VOLUME,
        },
        f"a price must lie between {MIN_PRICE:g} and {MAX_PRICE:g} and within {MAX_FACTOR:,.0f} times of the close, "
        f"and a volume be at most {MAX_VOLUME:g}",
    ),
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
        pl.coalesce(pl.when(rule.broken).then(pl.lit(rule.reason)) for rule in rules)
        .str.replace("{calendar}", pl.col("calendar"), literal=True)
        .alias("reason"),
    ]
