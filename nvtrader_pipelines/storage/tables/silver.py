"""Bars cleaned, and what was refused."""

from nvtrader_pipelines.storage.table import Table, columns_of
from nvtrader_pipelines.storage.tables.columns import BAR

CLEAN_BARS = Table(
    "silver",
    "clean_bars",
    BAR
    + columns_of(
        """
        open double opening price, as traded
        high double highest price, as traded
        low double lowest price, as traded
        close double closing price, as traded
        volume double shares traded
        adj_close double close adjusted for splits and dividends
        file string delivered file
        line long line or row in the file
        """
    ),
    ("year",),
)
QUARANTINE = Table(
    "silver",
    "quarantine",
    columns_of(
        """
        source string which source delivered the row
        year int year of the bronze row; the partition
        file string delivered file
        line long line or row in the file; 0 for the whole file
        symbol string symbol as delivered
        date string date as delivered
        rule string the first rule the row breaks
        value string the offending value as delivered
        reason string what must hold, what was found
        """
    ),
    ("year",),
)
