import polars as pl
import pytest
from pandera.errors import SchemaError, SchemaErrors

from nvtrader_pipelines.market import schemas
from tests.markets import LandedFile, csv_file, market_tables, synthetic_bars

TABLES = market_tables(csv_file(synthetic_bars(n_sessions=30)), LandedFile("empty.csv", b""))
SCHEMAS = {
    "silver.clean_bars": schemas.CLEAN_BARS,
    "silver.quarantine": schemas.QUARANTINE,
    "gold.returns": schemas.RETURNS,
    "gold.features": schemas.FEATURES,
}
FRAMES = {
    "silver.clean_bars": TABLES.clean_bars,
    "silver.quarantine": TABLES.quarantine,
    "gold.returns": TABLES.returns,
    "gold.features": TABLES.features,
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_tables_of_the_pipeline_satisfy_their_schemas(name):
    SCHEMAS[name].validate(FRAMES[name])


@pytest.mark.parametrize("name", SCHEMAS)
def test_empty_table_satisfies_its_schema(name):
    SCHEMAS[name].validate(FRAMES[name].head(0))


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("silver.clean_bars", "close", pl.lit(-1.0)),
        ("silver.clean_bars", "close", pl.lit(None, pl.Float64)),
        ("silver.clean_bars", "close", pl.col("high") * 1.1),
        ("silver.clean_bars", "adj_close", pl.lit(float("nan"))),
        ("silver.clean_bars", "volume", pl.lit(-1.0)),
        ("silver.clean_bars", "symbol", pl.lit("K$O")),
        ("silver.clean_bars", "session", pl.lit("2015-01-03").str.to_date()),
        ("silver.clean_bars", "year", pl.lit(1999, pl.Int32)),
        ("silver.clean_bars", "surprise", pl.lit(1)),
        ("silver.quarantine", "rule", pl.lit(None, pl.String)),
        ("gold.returns", "close_return", pl.lit(-1.5)),
        ("gold.returns", "adj_high", pl.lit(0.0)),
        ("gold.returns", "span", pl.lit(0, pl.Int32)),
        ("gold.features", "rsi_14", pl.lit(float("nan"))),
        ("gold.features", "return_1", pl.lit(float("inf"))),
    ],
)
def test_invalid_value_breaks_the_schema(name, column, value):
    with pytest.raises((SchemaError, SchemaErrors)):
        SCHEMAS[name].validate(FRAMES[name].with_columns(value.alias(column)))


@pytest.mark.parametrize("name", ["silver.clean_bars", "gold.returns", "gold.features"])
def test_repeated_key_breaks_the_schema(name):
    with pytest.raises((SchemaError, SchemaErrors)):
        SCHEMAS[name].validate(pl.concat([FRAMES[name], FRAMES[name].head(1)]))
