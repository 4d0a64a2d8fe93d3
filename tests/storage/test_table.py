import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.storage.table import Table

TABLE = Table(
    "gold",
    "numbers",
    TableSchema(
        Column("year", pl.Int32, "the partition"),
        Column("values", pl.List(pl.Float64), "some numbers"),
        Column("at", UTC_TIME, "when"),
    ),
    ("year",),
)


def test_iceberg_schema_of_a_table_has_types_and_meanings():
    fields = [(each.name, str(each.field_type), each.doc) for each in TABLE.iceberg_schema().fields]
    assert fields == [
        ("year", "int", "the partition"),
        ("values", "list<double>", "some numbers"),
        ("at", "timestamptz", "when"),
    ]


def test_iceberg_schema_of_a_table_has_every_id_once():
    assert sorted(TABLE.iceberg_schema().field_ids) == [1, 2, 3, 1002]
