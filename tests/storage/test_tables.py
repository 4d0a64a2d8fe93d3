import pytest

from nvtrader_pipelines.market import tables as market_tables
from nvtrader_pipelines.market.features import feature_schema
from nvtrader_pipelines.storage.tables import (
    BARS,
    CLEAN_BARS,
    DELIVERIES,
    FEATURES,
    MARKET_PANEL,
    QUARANTINE,
    REGIMES,
    RETURNS,
    TABLES,
)
from tests.storage.frames import schema_of

MARKET = {
    BARS: market_tables.BARS,
    DELIVERIES: market_tables.DELIVERIES,
    CLEAN_BARS: market_tables.CLEAN_BARS,
    QUARANTINE: market_tables.QUARANTINE,
    RETURNS: market_tables.RETURNS,
    FEATURES: feature_schema(),
    MARKET_PANEL: market_tables.PANELS,
    REGIMES: market_tables.REGIMES,
}


@pytest.mark.parametrize("table", MARKET, ids=lambda table: table.name)
def test_the_market_writes_exactly_the_columns_that_the_table_has(table):
    assert schema_of(table) == MARKET[table]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_says_what_it_means(table):
    for name, kind, meaning in table.columns:
        assert meaning not in {name, kind}, name


def test_the_names_of_tables_are_unique():
    assert len({table.name for table in TABLES}) == len(TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_partitions_are_identities_of_text_or_integer_columns(table):
    assert [field.name for field in table.partition_spec().fields] == list(table.partition_by)
    assert {table.kind_of(name) for name in table.partition_by} <= {"string", "int"}
