import polars as pl
import pytest

from nvtrader_pipelines.storage.table import Column, Table, columns_of, polars_type

TABLE = Table("gold", "numbers", columns_of("year int the partition\nvalues list<double> some numbers"), ("year",))


def test_columns_are_lines_of_name_type_and_meaning():
    assert TABLE.fields == (Column("year", "int", "the partition"), Column("values", "list<double>", "some numbers"))
    assert TABLE.columns == [("year", "int", "the partition"), ("values", "list<double>", "some numbers")]


def test_the_schema_carries_types_and_meaning_and_every_id_once():
    fields = TABLE.schema().fields
    assert [(field.name, str(field.field_type), field.doc) for field in fields] == TABLE.columns
    assert len(set(TABLE.schema().field_ids)) == 3


def test_lists_become_lists():
    assert polars_type("list<double>") == pl.List(pl.Float64)


def test_an_unknown_column_is_a_key_error():
    with pytest.raises(KeyError, match="clsoe"):
        TABLE.kind_of("clsoe")
