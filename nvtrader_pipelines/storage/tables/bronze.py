"""Bars as delivered."""

from nvtrader_pipelines.storage.table import Table, columns_of

BARS = Table(
    "bronze",
    "bars",
    columns_of(
        """
        source string which source delivered the bar
        year int year of the session, or of the delivery where the date cannot be read; the partition
        file string delivered file
        line long line or row in the file, from 1
        digest string SHA-256 of the delivered file
        symbol string symbol as delivered
        date string date as delivered
        open string opening price as delivered
        high string highest price as delivered
        low string lowest price as delivered
        close string closing price as delivered
        volume string volume as delivered
        adj_close string adjusted close as delivered
        ingested_at timestamp when the file was ingested
        """
    ),
    ("year",),
)
DELIVERIES = Table(
    "bronze",
    "deliveries",
    columns_of(
        """
        source string which source delivered the file
        file string delivered file
        digest string SHA-256 of the file
        size long size of the file in bytes
        n_rows long rows in the file
        years list<int> years ingested of this digest
        rule string why the whole file was refused, if it was
        reason string the same as a sentence
        ingested_at timestamp when the file was ingested
        """
    ),
)
