"""Ingestion of a delivery into bronze rows: text as delivered, with its file and time."""

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import polars as pl

from nvtrader_pipelines.market.calendar import Calendars, TradingCalendar
from nvtrader_pipelines.market.rules import parse_date
from nvtrader_pipelines.market.sources.delivery import DeliveredRows, Delivery, UnreadableFile
from nvtrader_pipelines.market.tables import BARS, DELIVERED, DELIVERIES

FIRST_YEAR = 1900


@dataclass(frozen=True, eq=False)
class IngestedDelivery:
    """Rows for `bronze.bars` and the one row for `bronze.deliveries`."""

    bars: pl.DataFrame
    delivery_row: pl.DataFrame


def ingest(
    delivery: Delivery,
    years: Collection[int] | None,
    ingested_at: dt.datetime,
    calendar: TradingCalendar,
) -> IngestedDelivery:
    """Read the delivery's rows of the given years (None: all years), and describe the delivery.

    A row belongs to the year of its date, or to the year of `ingested_at` if the date cannot be parsed or is outside
    1900 to that year, so that no row is lost. An unreadable file gives no bars, and its delivery row has the rule and
    the reason.
    """
    try:
        delivered, refusal = delivery.read(), None
    except UnreadableFile as error:
        delivered, refusal = DeliveredRows(DELIVERED.to_frame()), error
    rows = delivered.rows
    this_year = ingested_at.year
    year = parse_date(Calendars({delivery.source: calendar})).dt.year()
    bars = rows.with_columns(source=pl.lit(delivery.source)).with_columns(
        year=pl.when(year.is_between(FIRST_YEAR, this_year)).then(year).otherwise(this_year),
        file=pl.lit(delivery.file),
        digest=pl.lit(delivery.digest),
        ingested_at=pl.lit(ingested_at),
    )
    wanted = bars if years is None else bars.filter(pl.col("year").is_in(sorted(years)))
    row = delivery_row(
        delivery,
        len(rows),
        ingested_at,
        refusal,
        years=sorted(wanted["year"].unique()),
        calendar=calendar.name,
        guessed_symbol=delivered.guessed_symbol,
        unused_columns=list(delivered.unused_columns),
    )
    return IngestedDelivery(wanted.select(pl.col(name).cast(kind) for name, kind in BARS.items()), row)


def delivery_row(
    delivery: Delivery, n_rows: int, ingested_at: dt.datetime, refusal: UnreadableFile | None, **facts: Any
) -> pl.DataFrame:
    """Describe a delivery as its row of `bronze.deliveries`, with more columns as `facts`."""
    row = {
        "source": delivery.source,
        "file": delivery.file,
        "digest": delivery.digest,
        "size": delivery.size,
        "n_rows": n_rows,
        "rule": refusal.rule if refusal else None,
        "reason": refusal.reason if refusal else None,
        "ingested_at": ingested_at,
    }
    empty: dict[str, Any] = {**dict.fromkeys(DELIVERIES), "years": [], "unused_columns": []}
    return pl.DataFrame([empty | row | facts], schema=DELIVERIES)
