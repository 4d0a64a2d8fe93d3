import polars as pl
import pytest
from pandera.errors import SchemaError, SchemaErrors

from nvtrader_pipelines.market.schemas import market_schema
from tests.markets import LandedFile, csv_file, market_tables, synthetic_bars

TABLES = market_tables(csv_file(synthetic_bars(n_sessions=30)), LandedFile("empty.csv", b""))
FRAMES = {
    "clean_bars": TABLES.clean_bars,
    "quarantine": TABLES.quarantine,
    "returns": TABLES.returns,
    "features": TABLES.features,
}


@pytest.mark.parametrize("name", FRAMES)
def test_tables_of_the_pipeline_satisfy_their_schemas(name):
    market_schema(name).validate(FRAMES[name])


@pytest.mark.parametrize("name", FRAMES)
def test_empty_table_satisfies_its_schema(name):
    market_schema(name).validate(FRAMES[name].head(0))


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("clean_bars", "close", pl.lit(-1.0)),
        ("clean_bars", "close", pl.lit(None, pl.Float64)),
        ("clean_bars", "close", pl.col("high") * 1.1),
        ("clean_bars", "adj_close", pl.lit(float("nan"))),
        ("clean_bars", "volume", pl.lit(-1.0)),
        ("clean_bars", "symbol", pl.lit("K$O")),
        ("clean_bars", "session", pl.lit("2015-01-03").str.to_date()),
        ("clean_bars", "year", pl.lit(1999, pl.Int32)),
        ("clean_bars", "surprise", pl.lit(1)),
        ("quarantine", "rule", pl.lit(None, pl.String)),
        ("returns", "close_return", pl.lit(-1.5)),
        ("returns", "adj_high", pl.lit(0.0)),
        ("returns", "span", pl.lit(0, pl.Int32)),
        ("features", "rsi_14", pl.lit(float("nan"))),
        ("features", "return_1", pl.lit(float("inf"))),
    ],
)
def test_invalid_value_breaks_the_schema(name, column, value):
    with pytest.raises((SchemaError, SchemaErrors)):
        market_schema(name).validate(FRAMES[name].with_columns(value.alias(column)))


@pytest.mark.parametrize("name", ["clean_bars", "returns", "features"])
def test_repeated_key_breaks_the_schema(name):
    with pytest.raises((SchemaError, SchemaErrors)):
        market_schema(name).validate(pl.concat([FRAMES[name], FRAMES[name].head(1)]))
