"""Ingestion of deliveries into bronze bars and outside series, and the panels pinned to what was derived."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.text import group_by_message
from nvtrader_pipelines.evaluation.formats import pluralize
from nvtrader_pipelines.market.ingest import ingest
from nvtrader_pipelines.market.panel import PANEL_ARRAYS, MarketPanel, panel_row
from nvtrader_pipelines.market.series_files import ingest_series
from nvtrader_pipelines.market.sources import Delivery, LandedFile
from nvtrader_pipelines.market.sources.delivery import LANDING, is_of_series
from nvtrader_pipelines.market.sources.delivery import SERIES as SERIES_SOURCE
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.landing_zone import landed_files, store_copies
from nvtrader_pipelines.storage.locks import home_lock
from nvtrader_pipelines.storage.panels import current_snapshots, read_panel
from nvtrader_pipelines.storage.specs import read_market
from nvtrader_pipelines.storage.tables import BARS, DELIVERIES, MARKET_PANEL, RETURNS, SERIES

FILE_KEY = ["source", "file"]  # columns that identify a delivery


@dataclass(frozen=True)
class Ingestion:
    """Result of an ingest."""

    n_rows: int  # bronze rows of the ingested years, afterwards
    files_seen: int
    files_read: int
    refused: dict[str, str]  # file to the reason why it could not be read

    @property
    def summary(self) -> str:
        """Summary in one line."""
        refused = f", {len(self.refused)} could not be read" if self.refused else ""
        return f"{self.files_seen} delivered, {self.files_read} of them new or changed{refused}"


def ingest_market(tables: Warehouse, years: Sequence[int], at: datetime) -> Ingestion:
    """Merge the deliveries of the market's sources into the bronze table, for the given years.

    A file that was ingested for these years with the same digest is not read again; a changed file replaces its rows.
    All bars change in one commit. The deliveries are recorded after it, so a crash in between repeats the work.
    Outside series are read whole each time, and replaced if they differ.
    Concurrent ingests run one after the other.
    """
    with home_lock(tables.home, "ingest"):
        return _ingest(tables, years, at)


def _ingest(tables: Warehouse, years: Sequence[int], at: datetime) -> Ingestion:
    files = landed_files(tables.home)
    store_copies(tables.home, files)
    market = read_market(tables.home)
    known, stored = tables.read(DELIVERIES), _count_stored(tables)
    deliveries = market.deliveries(files, set(known.filter(pl.col("source") != LANDING)["file"]))
    new = [delivery for delivery in deliveries if not _is_ingested(known, stored, delivery, years)]
    parts = [ingest(delivery, years, at, market.calendars.of(delivery.source)) for delivery in new]
    rows = pl.concat([DELIVERIES.schema.to_frame(), *(part.delivery_row for part in parts)])
    series = _ingest_series(tables, known, files, at)
    readers = {delivery.file: delivery.source for delivery in deliveries} | dict.fromkeys(series["file"], SERIES_SOURCE)
    keys = pl.concat([rows.select(FILE_KEY), _moved_files(known, readers)])
    if len(keys):
        before = tables.read(BARS, {"year": years}).join(keys, on=FILE_KEY, how="anti")
        bars = pl.concat([before, *(part.bars for part in parts)])
        tables.replace(BARS, bars.select(BARS.schema.names()), {"year": years})
        stored = _count_stored(tables)
    unchanged = known.filter(pl.col("source") != SERIES_SOURCE).join(keys, on=FILE_KEY, how="anti")
    described = _with_stored_years(pl.concat([unchanged, rows, series]), stored)
    calendars = {source.name: source.calendar for source in market.sources}
    described = described.with_columns(calendar=pl.col("source").replace_strict(calendars, default=pl.col("calendar")))
    if not described.equals(known):
        tables.replace(DELIVERIES, described, {})
    new_series = series.filter(pl.col("ingested_at") == at)
    refused = pl.concat([rows, new_series]).filter(pl.col("rule").is_not_null())
    return Ingestion(
        n_rows=int(stored.filter(pl.col("year").is_in(list(years)))["n_stored"].sum()),
        files_seen=len(deliveries) + len(series),
        files_read=len(new) + len(new_series),
        refused=dict(refused.select("file", "reason").iter_rows()),
    )


def _ingest_series(tables: Warehouse, known: pl.DataFrame, files: Sequence[LandedFile], at: datetime) -> pl.DataFrame:
    """Replace `silver.series` if it differs from the files; return their rows of `bronze.deliveries`."""
    series = ingest_series([file for file in files if is_of_series(file.name)], at)
    if not series.rows.equals(tables.read(SERIES)):
        tables.replace(SERIES, series.rows, {})
    rows, columns = series.delivery_rows, [*FILE_KEY, "digest", "n_rows", "reason"]
    before = known.select(*columns, pl.col("ingested_at").alias("before"))
    dated = rows.join(before, on=columns, how="left", nulls_equal=True, maintain_order="left")
    return dated.with_columns(ingested_at=pl.coalesce("before", "ingested_at")).drop("before")


def _moved_files(known: pl.DataFrame, readers: Mapping[str, str]) -> pl.DataFrame:
    """Landed files in a folder that another source has read before: their bars are no longer of that one.

    `readers` are the sources that read them now, by file.
    """
    in_folder = [(file, source) for file, source in readers.items() if "/" in file]
    now = pl.DataFrame(in_folder, schema={"file": pl.String, "reader": pl.String}, orient="row")
    return known.join(now, on="file").filter(pl.col("source") != pl.col("reader")).select(FILE_KEY)


def _count_stored(tables: Warehouse) -> pl.DataFrame:
    """Count the rows in `bronze.bars` per delivery and year."""
    rows = tables.read(BARS, columns=[*FILE_KEY, "digest", "year"])
    return rows.group_by(*FILE_KEY, "digest", "year").len("n_stored")


def _is_ingested(known: pl.DataFrame, stored: pl.DataFrame, delivery: Delivery, years: Sequence[int]) -> bool:
    """Whether all rows of the file and years are stored, and none of an earlier content."""
    same = (pl.col("source") == delivery.source) & (pl.col("file") == delivery.file)
    same_delivery, of_file = known.filter(same & (pl.col("digest") == delivery.digest)), stored.filter(same)
    if same_delivery.is_empty():
        return False
    is_whole = of_file["n_stored"].sum() == same_delivery["n_rows"][0] and (of_file["digest"] == delivery.digest).all()
    return is_whole or set(years) <= set(same_delivery["years"][0])


def _with_stored_years(deliveries: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """Set the years of each delivery to those of its stored rows."""
    key = [*FILE_KEY, "digest"]
    years = stored.group_by(key).agg(pl.col("year").cast(pl.Int32).sort().alias("years"))
    joined = deliveries.drop("years").join(years, on=key, how="left", maintain_order="left")
    return joined.with_columns(pl.col("years").fill_null([])).select(DELIVERIES.schema.names())


@dataclass(frozen=True)
class PinningResult:
    """Result of pinning: number of panels, and what they lack."""

    n_panels: int
    left_out: dict[str, str]  # source to why it has no panel, or only one without some symbols

    @property
    def summary(self) -> str:
        """Summary in one line."""
        without = "".join(f"; {source}: {why}" for source, why in self.left_out.items())
        return f"{pluralize(self.n_panels, 'panel')} pinned{without}"


def pin_panels(tables: Warehouse, at: datetime) -> PinningResult:
    """Build each source's panel from the current snapshots and record it in `gold.market_panel`."""
    known = current_snapshots(tables)
    rows, left_out = [MARKET_PANEL.schema.to_frame()], {}
    for source in sorted(tables.read(RETURNS, columns=["source"])["source"].unique()):
        try:
            panel = read_panel(tables, source, snapshot_ids=known)
        except ValueError as error:
            left_out[source] = str(error)
            continue
        rows.append(panel_row(panel, at))
        if panel.left_out:
            left_out[source] = "; ".join(group_by_message(panel.left_out.items()))
    tables.replace(MARKET_PANEL, pl.concat(rows), {})
    return PinningResult(len(rows) - 1, left_out)


def count_non_finite(tables: Warehouse) -> pl.DataFrame:
    """Count NaN and infinite values per array of the pinned panels; normally no rows."""
    rows = [
        (source, name, int((~np.isfinite(array)).sum()))
        for source in tables.read(MARKET_PANEL, columns=["source"])["source"]
        for name, array in _float_arrays(read_panel(tables, source))
    ]
    schema = {"source": pl.String, "array": pl.String, "n_nan": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row").filter(pl.col("n_nan") > 0)


def _float_arrays(panel: MarketPanel) -> list[tuple[str, NDArray[np.float64]]]:
    arrays = ((name, getattr(panel, name)) for name in PANEL_ARRAYS)
    return [(name, array) for name, array in arrays if array is not None and array.dtype == np.float64]
