import polars as pl
import pytest

from nvtrader_pipelines.storage.tables import TABLES


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_has_a_meaning(table):
    for column in table.schema.columns:
        assert column.doc not in {"", column.name}, column.name


def test_table_names_are_unique():
    assert len({table.name for table in TABLES}) == len(TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_partitions_are_identities_of_text_or_integer_columns(table):
    assert [field.name for field in table.partition_spec().fields] == list(table.partition_by)
    assert {table.schema[name] for name in table.partition_by} <= {pl.String(), pl.Int32()}
