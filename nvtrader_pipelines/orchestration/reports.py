"""Metadata of assets: column schemas, row counts, snapshots, data versions and pictures."""

import base64
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import dagster as dg
import polars as pl
from PIL import Image

from nvtrader_pipelines.figures.canvas import Picture, RenderedPicture
from nvtrader_pipelines.storage.files import PICTURE_FORMATS, write_picture
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import Table

MAX_PICTURE_SIZE = (1120, 1120)  # pixels; Dagster's window is 1,152 wide on a screen of 1,440


def asset_key(table: Table) -> dg.AssetKey:
    """Key of the asset that writes a table."""
    return dg.AssetKey([table.namespace, table.table])


def table_metadata(table: Table) -> dict[str, Any]:
    """Metadata of a table that is known before any run: its columns with their documentation, and its name."""
    fields = table.iceberg_schema().fields
    columns = [dg.TableColumn(field.name, str(field.field_type), description=field.doc) for field in fields]
    return {"dagster/column_schema": dg.TableSchema(columns), "dagster/table_name": table.name}


def format_snapshot_ids(snapshot_ids: Mapping[str, int]) -> dict[str, str]:
    """Format snapshot ids as text: a browser rounds 64-bit integers."""
    return {table: str(snapshot_id) for table, snapshot_id in snapshot_ids.items()}


def picture_metadata(png: bytes) -> dg.MarkdownMetadataValue:
    """Embed a PNG in Markdown, scaled to the window of the UI."""
    content = BytesIO()
    with Image.open(BytesIO(png)) as image:
        image.thumbnail(MAX_PICTURE_SIZE)
        image.save(content, "PNG")
    return dg.MetadataValue.md(f"![plot](data:image/png;base64,{base64.b64encode(content.getvalue()).decode()})")


def store_pictures(
    home: Home,
    asset: str,
    pictures: Mapping[str, Picture | RenderedPicture],
    partition_key: str | None = None,
) -> dict[str, Any]:
    """Store an asset's plots as PNG and SVG files and return them as metadata.

    Args:
        home: home that holds them as `warehouse/pictures/<asset>/[<partition_key>/]<name>.png` and `.svg`.
        asset: last part of the asset's key.
        pictures: by name; other pictures in the folder are outdated and deleted.
        partition_key: partition of the pictures, if the asset has partitions.

    Returns:
        Metadata of a materialization: each picture by its name, and the folder.
    """
    folder = home.pictures / asset / (partition_key or "")
    for name, picture in pictures.items():
        for suffix in PICTURE_FORMATS:
            write_picture(folder / f"{name}{suffix}", picture)
    for outdated in folder.glob("*.*"):
        if outdated.suffix in PICTURE_FORMATS and outdated.stem not in pictures:
            outdated.unlink(missing_ok=True)
    return {
        **{name: picture_metadata((folder / f"{name}.png").read_bytes()) for name in pictures},
        "pictures": dg.MetadataValue.path(str(folder)),
    }


def markdown_table(rows: pl.DataFrame) -> str:
    """Format rows as a Markdown table; null is blank."""
    lines = [rows.columns, ["---"] * rows.width, *([_cell(cell) for cell in row] for row in rows.iter_rows())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if len(rows) else "nothing"


def _cell(value: object) -> str:
    """Format a cell on one line, with escaped bars."""
    return "" if value is None else " ".join(str(value).split()).replace("|", r"\|")


def table_result(
    store: Store, table: Table, n_rows: int, extra: Mapping[str, Any] | None = None
) -> dg.MaterializeResult:
    """Report a table just written, with its snapshot as data version."""
    state = store.tables.describe(table)
    return dg.MaterializeResult(
        asset_key=asset_key(table),
        metadata={
            **(extra or {}),  # shown first
            "dagster/row_count": state.n_rows,
            "dagster/partition_row_count": n_rows,
            "size_bytes": state.n_bytes,
            "files": state.n_files,
            "iceberg_snapshot_id": str(state.snapshot_id),
        },
        data_version=dg.DataVersion(str(state.snapshot_id)),
    )
