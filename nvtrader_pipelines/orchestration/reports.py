"""What assets say of themselves: column schemas, row counts, snapshots, data versions, pictures."""

import base64
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import dagster as dg
import polars as pl
from PIL import Image

from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import Table

MAX_PICTURE_SIZE = (1120, 1120)  # pixels at the most; of a screen 1,440 wide Dagster's window takes 1,152


def asset_key(table: Table) -> dg.AssetKey:
    """The asset that writes a table."""
    return dg.AssetKey([table.namespace, table.table])


def column_schema(table: Table) -> dg.TableSchema:
    """The table's columns with their documentation."""
    fields = table.iceberg_schema().fields
    return dg.TableSchema([dg.TableColumn(each.name, str(each.field_type), description=each.doc) for each in fields])


def table_metadata(table: Table) -> dict[str, Any]:
    """What is known of a table before any run."""
    return {"dagster/column_schema": column_schema(table), "dagster/table_name": table.name}


def format_snapshot_ids(snapshot_ids: Mapping[str, int]) -> dict[str, str]:
    """Snapshot ids by table as text: a browser rounds whole numbers of 64 bits."""
    return {table: str(snapshot_id) for table, snapshot_id in snapshot_ids.items()}


def picture_metadata(png: bytes) -> dg.MarkdownMetadataValue:
    """A PNG that the UI shows, made as small as the window that it opens for it; its Markdown knows no width."""
    content = BytesIO()
    with Image.open(BytesIO(png)) as shown:
        shown.thumbnail(MAX_PICTURE_SIZE)
        shown.save(content, "PNG")
    return dg.MetadataValue.md(f"![plot](data:image/png;base64,{base64.b64encode(content.getvalue()).decode()})")


def store_pictures(
    home: Home, asset: str, pictures: Mapping[str, bytes], partition_key: str | None = None
) -> dict[str, Any]:
    """Keep an asset's plots as PNG files, and show them.

    Args:
        home: where they lie: `warehouse/pictures/<asset>/[<partition_key>/]<name>.png`.
        asset: the last part of the asset's key.
        pictures: PNG by name; what the folder holds beyond them is of a former state and goes.
        partition_key: the partition they are of, where the asset has partitions.

    Returns:
        Metadata of a materialisation: each picture by its name, and the folder.
    """
    folder = home.pictures / asset / (partition_key or "")
    for name, png in pictures.items():
        write_atomically(folder / f"{name}.png", png)
    for former in folder.glob("*.png"):
        if former.stem not in pictures:
            former.unlink(missing_ok=True)
    return {
        **{name: picture_metadata(png) for name, png in pictures.items()},
        "pictures": dg.MetadataValue.path(str(folder)),
    }


def markdown_table(rows: pl.DataFrame) -> str:
    """Rows as the UI shows them; what is not known is left blank."""
    lines = [rows.columns, ["---"] * rows.width, *([_cell(cell) for cell in row] for row in rows.iter_rows())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if len(rows) else "nothing"


def _cell(value: object) -> str:
    """A cell's text, which neither ends the cell nor the line."""
    return "" if value is None else " ".join(str(value).split()).replace("|", r"\|")


def table_result(
    store: Store, table: Table, n_rows: int, extra: Mapping[str, Any] | None = None
) -> dg.MaterializeResult:
    """The report of a table just written: its snapshot is its data version."""
    state = store.tables.describe(table)
    return dg.MaterializeResult(
        asset_key=asset_key(table),
        metadata={
            **(extra or {}),  # first: what a person opens the page for
            "dagster/row_count": state.n_rows,
            "dagster/partition_row_count": n_rows,
            "size_bytes": state.n_bytes,
            "files": state.n_files,
            "iceberg_snapshot_id": str(state.snapshot_id),
        },
        data_version=dg.DataVersion(str(state.snapshot_id)),
    )
