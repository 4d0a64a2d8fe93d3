"""Files of outside series: their rows, or the refusal of a whole file."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME
from nvtrader_pipelines.market.calendar import FIRST_DAY, NEW_YORK
from nvtrader_pipelines.market.ingest import delivery_row
from nvtrader_pipelines.market.rules import parse_number, parse_symbol, parsed_column
from nvtrader_pipelines.market.series import FIELD
from nvtrader_pipelines.market.sources.delivery import SERIES as SOURCE
from nvtrader_pipelines.market.sources.delivery import LandedFile, UnreadableFile
from nvtrader_pipelines.market.sources.file_names import SYMBOL
from nvtrader_pipelines.market.sources.landing import file_delivery, read_columns, read_header
from nvtrader_pipelines.market.tables import DELIVERIES, SERIES

HEADER = ("symbol", "published", "field", "value")
_KEY = ["symbol", "field", "published", "published_at"]
_LATEST_ZONE = dt.timedelta(hours=14)  # of the time zone in which a day begins first
_DAY = len("2020-01-31")
_DATE = "2020-01-31 or 2020-01-31T16:30"
_RULES = {  # of the rows of a file: the column that is wrong, and what must hold
    "odd_symbol": ("symbol", "must have 1 to 20 letters, digits and . - = ^, or none for the whole market,"),
    "missing_date": ("published", f"must have the date of its publication, such as {_DATE},"),
    "unparseable_date": ("published", f"must have a date such as {_DATE}, from {FIRST_DAY} on,"),
    "future_date": ("published", "must have a date up to the day of ingestion"),
    "odd_field": ("field", "must have 1 to 32 letters, digits and _, a letter first,"),
    "unparseable_number": ("value", "must have a finite number with a decimal point"),
    "repeated_value": ("published", "must have a date that no earlier line has for its symbol and field"),
}


@dataclass(frozen=True, eq=False)
class IngestedSeries:
    """Rows for `silver.series`, and those of their files for `bronze.deliveries`."""

    rows: pl.DataFrame
    delivery_rows: pl.DataFrame


def holds_series(file: LandedFile) -> bool:
    """Whether a file is of outside series, by its header."""
    try:
        return _is_header(read_header(file))
    except UnreadableFile:
        return False


def ingest_series(files: Sequence[LandedFile], ingested_at: dt.datetime) -> IngestedSeries:
    """Read files of outside series in the order of their names, and describe their deliveries.

    A file with a row that breaks a rule is refused whole, and so is one with another value than an earlier file for
    the same symbol, field and publication.
    """
    known, deliveries = SERIES.to_frame(), [DELIVERIES.to_frame()]
    for file in sorted(files, key=lambda file: file.name):
        try:
            rows, refusal = _read(file, (ingested_at + _LATEST_ZONE).date()), None
            _require_same_values(rows, known)
        except UnreadableFile as error:
            rows, refusal = SERIES.to_frame(), error
        known = pl.concat([known, rows])
        deliveries.append(delivery_row(file_delivery(SOURCE, file), len(rows), ingested_at, refusal))
    return IngestedSeries(known, pl.concat(deliveries))


def _is_header(header: Sequence[str]) -> bool:
    return sorted(cell.strip().lower() for cell in header) == sorted(HEADER)


def _read(file: LandedFile, today: dt.date) -> pl.DataFrame:
    header, fields, broken = read_columns(file)
    if not _is_header(header):
        raise UnreadableFile(
            "unknown_header",
            f"a file in data/landing/series must have the columns {','.join(HEADER)}, in any order, but has "
            f"{','.join(header)[:200]!r}; name them so, or move a file of prices out of the folder",
        )
    if len(broken):
        line = broken["line"][0]
        raise _refusal("malformed_row", line, "must split into four fields", broken["text"][0])
    if fields.is_empty():
        raise UnreadableFile("empty_file", "the file has a header but no rows; deliver it again with its rows")
    names = dict(zip(fields.columns[1:], (cell.strip().lower() for cell in header), strict=True))
    text = fields.rename(names).with_columns(pl.col(HEADER).fill_null("").str.strip_chars())
    published = [_parse_publication(moment) for moment in text["published"]]
    parsed = text.with_columns(
        parse_symbol().alias("parsed_symbol"),
        pl.col("field").str.to_lowercase().alias("parsed_field"),
        pl.Series("parsed_published", [day for day, _ in published], dtype=pl.Date),
        pl.Series("parsed_published_at", [moment for _, moment in published], dtype=UTC_TIME),
        parse_number("value").alias("parsed_value"),
    )
    _require_rules(parsed, today)
    columns = [parsed_column(name).alias(name) for name in (*_KEY, "value")]
    return parsed.select(*columns, pl.lit(file.name).alias("file"), "line").select(SERIES.names())


def _parse_publication(text: str) -> tuple[dt.date | None, dt.datetime | None]:
    """Day and UTC time of a publication in ISO 8601; no time for a day or its midnight, no day if it is neither.

    A time without a zone is New York's.
    """
    try:
        moment = dt.datetime.fromisoformat(text)
        local = moment if moment.tzinfo else moment.replace(tzinfo=NEW_YORK.time_zone)
        at = local.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None, None
    day = moment.date() if moment.date() >= FIRST_DAY else None
    is_day = len(text) <= _DAY or moment.time() == dt.time(0)  # as tables write a column of days
    return day, None if is_day else at


def _require_rules(parsed: pl.DataFrame, today: dt.date) -> None:
    """Raise UnreadableFile with the first rule that a row breaks, and its line."""
    symbol, field, day, value = map(parsed_column, ("symbol", "field", "published", "value"))
    broken = {
        "odd_symbol": (symbol != "") & ~symbol.str.contains(SYMBOL),
        "missing_date": pl.col("published") == "",
        "unparseable_date": day.is_null(),
        "future_date": day > today,
        "odd_field": ~field.str.contains(FIELD),
        "unparseable_number": value.is_null() | ~value.is_finite(),
        "repeated_value": ~pl.struct(map(parsed_column, _KEY)).is_first_distinct(),
    }
    for rule, (column, reason) in _RULES.items():
        for line, text in parsed.filter(broken[rule]).select("line", column).head(1).iter_rows():
            raise _refusal(rule, line, f"{reason} in `{column}`", text)


def _require_same_values(rows: pl.DataFrame, known: pl.DataFrame) -> None:
    """Raise UnreadableFile with the first row that has another value in an earlier file."""
    both = rows.join(known, on=_KEY, nulls_equal=True, suffix="_before").filter(
        pl.col("value") != pl.col("value_before")
    )
    for row in both.sort("line").head(1).iter_rows(named=True):
        before = f"{row['value_before']:g} in line {row['line_before']} of {row['file_before']}"
        raise _refusal("other_value", row["line"], f"must have the value of an earlier file, {before}", row["value"])


def _refusal(rule: str, line: int, reason: str, value: object) -> UnreadableFile:
    text = str(value)[:200]
    return UnreadableFile(rule, f"line {line} {reason}, but has {text!r}; correct the line and deliver the file again")
