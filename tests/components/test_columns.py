import polars as pl
import pytest
from polars.exceptions import DuplicateError

from nvtrader_pipelines.components.columns import Column, TableSchema, interval_bounds

KEY = TableSchema(Column("symbol", pl.String, "name"), Column("session", pl.Date, "day"))
CLOSE = Column("close", pl.Float64, "price")


def test_table_schema_of_parts_is_their_columns_in_order():
    joined = TableSchema(KEY, CLOSE)
    assert joined == pl.Schema({"symbol": pl.String, "session": pl.Date, "close": pl.Float64})
    assert joined.columns == (*KEY.columns, CLOSE)
    assert joined.to_frame().schema == joined


def test_table_schema_of_a_column_twice_is_refused():
    with pytest.raises(DuplicateError):
        TableSchema(KEY, Column("symbol", pl.String, "another"))


def test_only_takes_columns_in_the_order_of_the_names():
    assert TableSchema(KEY, CLOSE).only("close", "symbol").columns == (CLOSE, KEY.columns[0])


def test_without_leaves_columns_out():
    assert TableSchema(KEY, CLOSE).without("session").columns == (KEY.columns[0], CLOSE)


@pytest.mark.parametrize("method", [KEY.only, KEY.without])
def test_an_unknown_column_is_a_key_error(method):
    with pytest.raises(KeyError):
        method("clsoe")


def test_interval_bounds_are_two_columns_of_the_statistic():
    assert interval_bounds("sharpe", "bound").columns == (
        Column("sharpe_low", pl.Float64, "2.5 % bound"),
        Column("sharpe_high", pl.Float64, "97.5 % bound"),
    )
