"""Validation of market tables by their pandera schemas, which take most of a second to import."""

import pandera.errors
import polars as pl

from nvtrader_pipelines.market import schemas
from nvtrader_pipelines.storage.tables import CLEAN_BARS, FEATURES, QUARANTINE, RETURNS, Table

SCHEMAS = {
    CLEAN_BARS: schemas.CLEAN_BARS,
    QUARANTINE: schemas.QUARANTINE,
    RETURNS: schemas.RETURNS,
    FEATURES: schemas.FEATURES,
}


def schema_violations(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows, or values, of a market table that break its schema."""
    try:
        SCHEMAS[table].validate(rows, lazy=True)
    except pandera.errors.SchemaErrors as errors:
        return pl.DataFrame(errors.failure_cases)
    return rows.clear()
