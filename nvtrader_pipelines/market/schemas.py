"""Pandera schemas of the cleaned tables; asset checks validate against them."""

from collections.abc import Mapping, Sequence

import pandera.polars as pa
import polars as pl

from nvtrader_pipelines.components.columns import TableSchema
from nvtrader_pipelines.market import tables
from nvtrader_pipelines.market.calendar import all_sessions
from nvtrader_pipelines.market.rules import PRICE_TOLERANCE, SYMBOL

_FRACTION = 1e6  # a simple return above this is a broken price, not a return
_POSITIVE, _NOT_NEGATIVE, _FROM_1 = pa.Check.gt(0), pa.Check.ge(0), pa.Check.ge(1)
_RETURN = [pa.Check.gt(-1.0), pa.Check.lt(_FRACTION)]


def _session_is_of_the_exchange(data: pa.PolarsData) -> pl.LazyFrame:
    return data.lazyframe.select(pl.col("session").is_in(pl.Series(all_sessions()).implode()))


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


_BAR = {"symbol": pa.Check.str_matches(SYMBOL), "session": pa.Check(_session_is_of_the_exchange)}
_YEAR = pa.Check(_year_is_that_of_the_session)
CLEAN_BARS = _schema(
    tables.CLEAN_BARS,
    {**_BAR, **dict.fromkeys(tables.PRICES, _POSITIVE), "volume": _NOT_NEGATIVE, "line": _FROM_1},
    rows=[_YEAR, pa.Check(_close_lies_in_the_range)],
    nullable=["open", "high", "low", "volume"],
)
QUARANTINE = _schema(
    tables.QUARANTINE,
    {"line": _NOT_NEGATIVE, "rule": pa.Check.str_matches("^[a-z_]+$"), "reason": pa.Check.str_length(min_value=10)},
    nullable=["symbol", "date", "value"],
)
RETURNS = _schema(
    tables.RETURNS,
    {
        **_BAR,
        **dict.fromkeys(("adj_open", "adj_high", "adj_low", "adj_close"), _POSITIVE),
        **dict.fromkeys(("close_return", "overnight_return"), _RETURN),
        "span": _FROM_1,
        "volume": _NOT_NEGATIVE,
    },
    rows=[_YEAR],
    nullable=["adj_open", "adj_high", "adj_low", "close_return", "overnight_return", "span", "volume"],
)
FEATURES = _schema(tables.BAR, _BAR, rows=[_YEAR, pa.Check(_features_are_null_or_finite)], strict=False)
