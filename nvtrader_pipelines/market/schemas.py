"""Pandera schemas of the cleaned tables; asset checks validate against them."""

from collections.abc import Mapping, Sequence

import pandera.polars as pa
import polars as pl

from nvtrader_pipelines.components.columns import TableSchema
from nvtrader_pipelines.market import tables
from nvtrader_pipelines.market.calendar import ALL_NEW_YORK, Calendars
from nvtrader_pipelines.market.rules import PRICE_TOLERANCE, SYMBOL, is_session

_FRACTION = 1e6  # a simple return above this is a broken price, not a return
_POSITIVE, _NOT_NEGATIVE, _FROM_1 = pa.Check.gt(0), pa.Check.ge(0), pa.Check.ge(1)
_RETURN = [pa.Check.gt(-1.0), pa.Check.lt(_FRACTION)]


def _year_is_that_of_the_session(data: pa.PolarsData) -> pl.LazyFrame:
    return data.lazyframe.select(pl.col("year") == pl.col("session").dt.year())


def _close_lies_in_the_range(data: pa.PolarsData) -> pl.LazyFrame:
    """Low <= close <= high where they are known, up to rounding."""
    above = pl.col("close") >= pl.col("low") * (1.0 - PRICE_TOLERANCE)
    below = pl.col("close") <= pl.col("high") * (1.0 + PRICE_TOLERANCE)
    return data.lazyframe.select(above.fill_null(value=True) & below.fill_null(value=True))


def _features_are_null_or_finite(data: pa.PolarsData) -> pl.LazyFrame:
    """NaN and infinity never stand for `not known`."""
    finite = pl.selectors.float().is_finite().fill_null(value=True)
    return data.lazyframe.select(pl.all_horizontal(finite))


def _schema(
    table: TableSchema,
    columns: Mapping[str, pa.Check | list[pa.Check]],
    rows: Sequence[pa.Check] = (),
    nullable: Sequence[str] = (),
    *,
    strict: bool = True,
) -> pa.DataFrameSchema:
    """The checks of a table: of single columns, and of rows; `strict` allows no other column."""
    return pa.DataFrameSchema(
        {name: pa.Column(dtype, columns.get(name), nullable=name in nullable) for name, dtype in table.items()},
        checks=list(rows),
        unique=list(tables.KEY) if set(tables.KEY) <= set(table) else None,
        strict=strict,
    )


_YEAR = pa.Check(_year_is_that_of_the_session)
_SYMBOL = {"symbol": pa.Check.str_matches(SYMBOL)}


def market_schema(table: str, calendars: Calendars = ALL_NEW_YORK) -> pa.DataFrameSchema:
    """Return the schema of a table: clean_bars, quarantine, returns or features."""

    def is_of_the_calendar(data: pa.PolarsData) -> pl.LazyFrame:
        return data.lazyframe.select(is_session("session", calendars))

    of_bars = [_YEAR, pa.Check(is_of_the_calendar)]
    match table:
        case "clean_bars":
            return _schema(
                tables.CLEAN_BARS,
                {**_SYMBOL, **dict.fromkeys(tables.PRICES, _POSITIVE), "volume": _NOT_NEGATIVE, "line": _FROM_1},
                rows=[*of_bars, pa.Check(_close_lies_in_the_range)],
                nullable=["open", "high", "low", "volume"],
            )
        case "returns":
            return _schema(
                tables.RETURNS,
                {
                    **_SYMBOL,
                    **dict.fromkeys(("adj_open", "adj_high", "adj_low", "adj_close"), _POSITIVE),
                    **dict.fromkeys(("close_return", "overnight_return"), _RETURN),
                    "span": _FROM_1,
                    "volume": _NOT_NEGATIVE,
                },
                rows=of_bars,
                nullable=["adj_open", "adj_high", "adj_low", "close_return", "overnight_return", "span", "volume"],
            )
        case "features":
            rows = [*of_bars, pa.Check(_features_are_null_or_finite)]
            return _schema(tables.BAR, _SYMBOL, rows=rows, strict=False)
        case _:
            return QUARANTINE


QUARANTINE = _schema(
    tables.QUARANTINE,
    {"line": _NOT_NEGATIVE, "rule": pa.Check.str_matches("^[a-z_]+$"), "reason": pa.Check.str_length(min_value=10)},
    nullable=["symbol", "date", "value"],
)
