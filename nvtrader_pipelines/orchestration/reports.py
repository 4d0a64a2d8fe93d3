"""What assets say of themselves: column schemas, row counts, snapshots, data versions, pictures."""

import base64
from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from nvtrader_pipelines.storage.tables import Table
from nvtrader_pipelines.storage.warehouse import Warehouse

OWNERS = ["team:nvtrader"]


def column_schema(table: Table) -> dg.TableSchema:
    """The table's columns with their documentation."""
    return dg.TableSchema(columns=[dg.TableColumn(name, kind, description=doc) for name, kind, doc in table.columns])


def table_metadata(table: Table) -> dict[str, Any]:
    """What is known of a table before any run."""
    return {"dagster/column_schema": column_schema(table), "dagster/table_name": table.name}


def picture(png: bytes) -> dg.MarkdownMetadataValue:
    """A PNG that the UI shows."""
    return dg.MetadataValue.md(f"![plot](data:image/png;base64,{base64.b64encode(png).decode()})")


def markdown_table(rows: pl.DataFrame) -> str:
    """Rows as the UI shows them."""
    lines = [rows.columns, ["---"] * rows.width, *([str(cell) for cell in row] for row in rows.iter_rows())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if len(rows) else "nothing"


def written(
    warehouse: Warehouse, table: Table, n_rows: int, extra: Mapping[str, Any] | None = None
) -> dg.MaterializeResult:
    """The report of a table just written: its snapshot is its data version."""
    state = warehouse.describe(table)
    return dg.MaterializeResult(
        asset_key=dg.AssetKey([table.namespace, table.table]),
        metadata={
            "dagster/row_count": state.n_rows,
            "dagster/partition_row_count": n_rows,
            "size_bytes": state.n_bytes,
            "files": state.n_files,
            "iceberg_snapshot_id": str(state.snapshot_id),
            **(extra or {}),
        },
        data_version=dg.DataVersion(str(state.snapshot_id)),
    )
