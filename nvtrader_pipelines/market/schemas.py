"""Pandera models of the cleaned tables; asset checks validate against them."""

import datetime as dt

import pandera.polars as pa
import polars as pl
from pandera.api.polars.model_config import BaseConfig

from nvtrader_pipelines.market.calendar import all_sessions
from nvtrader_pipelines.market.rules import PRICE_TOLERANCE, SYMBOL

_FRACTION = 1e6  # a simple return above this is a broken price, not a return


class _Bar(pa.DataFrameModel):
    """Row per source, symbol and session of the exchange."""

    source: str
    symbol: str = pa.Field(str_matches=SYMBOL)
    session: dt.date
    year: pl.Int32

    class Config(BaseConfig):
        """Unique keys."""

        unique = ["source", "symbol", "session"]  # noqa: RUF012 - pandera's own spelling

    @pa.dataframe_check
    @classmethod
    def year_matches_session(cls, data: pa.PolarsData) -> pl.LazyFrame:
        """Whether the partition column agrees with the date."""
        return data.lazyframe.select(pl.col("year") == pl.col("session").dt.year())

    @pa.check("session")
    @classmethod
    def session_is_trading_day(cls, data: pa.PolarsData) -> pl.LazyFrame:
        """Whether the exchange traded on that day."""
        return data.lazyframe.select(pl.col("session").is_in(pl.Series(all_sessions()).implode()))


class CleanBars(_Bar):
    """`silver.clean_bars`."""

    open: float = pa.Field(gt=0.0, nullable=True)
    high: float = pa.Field(gt=0.0, nullable=True)
    low: float = pa.Field(gt=0.0, nullable=True)
    close: float = pa.Field(gt=0.0)
    volume: float = pa.Field(ge=0.0, nullable=True)
    adj_close: float = pa.Field(gt=0.0)
    file: str
    line: int = pa.Field(ge=1)

    class Config(_Bar.Config):
        """Other columns are rejected."""

        strict = True

    @pa.dataframe_check
    @classmethod
    def close_is_in_range(cls, data: pa.PolarsData) -> pl.LazyFrame:
        """Whether low <= close <= high where they are known, up to rounding."""
        above = pl.col("close") >= pl.col("low") * (1.0 - PRICE_TOLERANCE)
        below = pl.col("close") <= pl.col("high") * (1.0 + PRICE_TOLERANCE)
        return data.lazyframe.select(above.fill_null(value=True) & below.fill_null(value=True))


class Quarantine(pa.DataFrameModel):
    """`silver.quarantine`."""

    source: str
    year: pl.Int32
    file: str
    line: int = pa.Field(ge=0)
    symbol: str = pa.Field(nullable=True)
    date: str = pa.Field(nullable=True)
    rule: str = pa.Field(str_matches=r"^[a-z_]+$")
    value: str = pa.Field(nullable=True)
    reason: str = pa.Field(str_length={"min_value": 10})

    class Config(BaseConfig):
        """Other columns are rejected."""

        strict = True


class Returns(_Bar):
    """`gold.returns`."""

    adj_open: float = pa.Field(gt=0.0, nullable=True)
    adj_close: float = pa.Field(gt=0.0)
    close_return: float = pa.Field(gt=-1.0, lt=_FRACTION, nullable=True)
    overnight_return: float = pa.Field(gt=-1.0, lt=_FRACTION, nullable=True)
    span: pl.Int32 = pa.Field(ge=1, nullable=True)
    volume: float = pa.Field(ge=0.0, nullable=True)

    class Config(_Bar.Config):
        """Other columns are rejected."""

        strict = True


class Features(_Bar):
    """`gold.features`: the keys, and one column per feature that is null or finite."""

    @pa.dataframe_check
    @classmethod
    def features_are_null_or_finite(cls, data: pa.PolarsData) -> pl.LazyFrame:
        """Whether no value is NaN or infinite."""
        finite = pl.selectors.float().is_finite().fill_null(value=True)
        return data.lazyframe.select(pl.all_horizontal(finite))


SCHEMAS: dict[str, type[pa.DataFrameModel]] = {
    "silver.clean_bars": CleanBars,
    "silver.quarantine": Quarantine,
    "gold.returns": Returns,
    "gold.features": Features,
}
