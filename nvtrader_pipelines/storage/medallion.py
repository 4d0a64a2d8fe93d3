"""Ingestion of deliveries into bronze bars, and market panels pinned to table snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.calendar import Calendars, TradingCalendar
from nvtrader_pipelines.market.features import Feature, add_features
from nvtrader_pipelines.market.history import price_history
from nvtrader_pipelines.market.ingest import ingest
from nvtrader_pipelines.market.look_ahead import require_causal_feature
from nvtrader_pipelines.market.panel import PANEL_ARRAYS, MarketPanel, build_panel, panel_row
from nvtrader_pipelines.market.sources import Delivery
from nvtrader_pipelines.market.sources.delivery import LANDING
from nvtrader_pipelines.market.symbol_groups import group_by_message
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import lock_path
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.landing_zone import landed_files, landed_paths, landing_folder, store_copies
from nvtrader_pipelines.storage.specs import read_market
from nvtrader_pipelines.storage.tables import BARS, DELIVERIES, FEATURES, MARKET_PANEL, PINNED, RETURNS

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
    Concurrent ingests run one after the other.
    """
    with file_lock(lock_path(tables.home, "ingest")):
        return _ingest(tables, years, at)


def _ingest(tables: Warehouse, years: Sequence[int], at: datetime) -> Ingestion:
    files = landed_files(tables.home)
    store_copies(tables.home, files)
    market = read_market(tables.home)
    known, stored = tables.read(DELIVERIES), _count_stored(tables)
    deliveries = market.deliveries(files, set(known.filter(pl.col("source") != LANDING)["file"]))
    new = [each for each in deliveries if not _is_ingested(known, stored, each, years)]
    parts = [ingest(delivery, years, at, market.calendars.of(delivery.source)) for delivery in new]
    rows = pl.concat([DELIVERIES.schema.to_frame(), *(part.delivery_row for part in parts)])
    keys = pl.concat([rows.select(FILE_KEY), _moved_files(known, deliveries)])
    if len(keys):
        before = tables.read(BARS, {"year": years}).join(keys, on=FILE_KEY, how="anti")
        bars = pl.concat([before, *(part.bars for part in parts)])
        tables.replace(BARS, bars.select(BARS.schema.names()), {"year": years})
        stored = _count_stored(tables)
    described = _with_stored_years(pl.concat([known.join(keys, on=FILE_KEY, how="anti"), rows]), stored)
    calendars = {source.name: source.calendar for source in market.sources}
    described = described.with_columns(calendar=pl.col("source").replace_strict(calendars, default=pl.col("calendar")))
    if not described.equals(known):
        tables.replace(DELIVERIES, described, {})
    refused = rows.filter(pl.col("rule").is_not_null())
    return Ingestion(
        n_rows=int(stored.filter(pl.col("year").is_in(list(years)))["n_stored"].sum()),
        files_seen=len(deliveries),
        files_read=len(new),
        refused=dict(refused.select("file", "reason").iter_rows()),
    )


def _moved_files(known: pl.DataFrame, deliveries: Sequence[Delivery]) -> pl.DataFrame:
    """Landed files in a folder that another source has read before: their bars are no longer of that one."""
    readers = {delivery.file: delivery.source for delivery in deliveries if "/" in delivery.file}
    now = pl.DataFrame(
        {"file": list(readers), "reader": list(readers.values())}, schema={"file": pl.String, "reader": pl.String}
    )
    return known.join(now, on="file").filter(pl.col("source") != pl.col("reader")).select(FILE_KEY)


def _count_stored(tables: Warehouse) -> pl.DataFrame:
    """Count the rows in `bronze.bars` per delivery and year."""
    rows = tables.read(BARS, columns=[*FILE_KEY, "digest", "year"])
    return rows.group_by(*FILE_KEY, "digest", "year").len("n_stored")


def _is_ingested(known: pl.DataFrame, stored: pl.DataFrame, delivery: Delivery, years: Sequence[int]) -> bool:
    """Whether all rows of the file and years are stored, and none of an earlier content."""
    same = (pl.col("source") == delivery.source) & (pl.col("file") == delivery.file)
    found, of_file = known.filter(same & (pl.col("digest") == delivery.digest)), stored.filter(same)
    if found.is_empty():
        return False
    is_whole = of_file["n_stored"].sum() == found["n_rows"][0] and (of_file["digest"] == delivery.digest).all()
    return is_whole or set(years) <= set(found["years"][0])


def read_calendars(tables: Warehouse) -> Calendars:
    """Read the calendars that sources have had since the last ingest; of others those of `data/market.yaml`."""
    delivered = tables.read(DELIVERIES, columns=["source", "calendar", "ingested_at"]).drop_nulls("calendar")
    last = delivered.sort("ingested_at").unique("source", keep="last").select("source", "calendar")
    past = {source: TradingCalendar(calendar) for source, calendar in last.iter_rows()}
    return Calendars({**read_market(tables.home).calendars.by_source, **past})


def read_panel(
    tables: Warehouse,
    source: str,
    symbols: Sequence[str] | None = None,
    max_gap: int = 5,
    snapshot_ids: dict[str, int] | None = None,
    features: Sequence[Feature] = (),
) -> MarketPanel:
    """Read the panel of a source at its pinned snapshots, or `snapshot_ids`, with more features.

    Raises:
        StorageError: if the source has no panel, or a snapshot has expired.
        ValueError: if its bars do not form a panel (a gap longer than `max_gap`, an unknown symbol).
        LookAheadError: if one of `features` depends on later sessions.
        PartError: if one of `features` fails.
    """
    snapshots = snapshot_ids or pinned_snapshots(tables, source)
    returns, known = (
        tables.read(table, {"source": [source]}, snapshot_id=snapshots[table.name]) for table in (RETURNS, FEATURES)
    )
    calendar = read_calendars(tables).of(source)
    for feature in features:
        require_causal_feature(feature, price_history(returns, calendar))
    known = add_features(returns, known, features, calendar)
    return build_panel(returns, known, symbols, max_gap, snapshots, calendar)


def pinned_snapshots(tables: Warehouse, source: str) -> dict[str, int]:
    """Snapshot id by table name, as pinned for a source.

    Raises:
        StorageError: if the source has no panel.
    """
    row = _pinned_row(tables, source)
    return {table.name: row[f"{table.table}_snapshot_id"] for table in PINNED}


def _choice_snapshots(tables: Warehouse, choice: MarketChoice) -> dict[str, int]:
    """Snapshots of a market choice: those pinned, or the current ones of a source that has no panel as a whole.

    Raises:
        StorageError: if the source has no panel, and the choice is the whole source or the source has no returns.
    """
    try:
        return pinned_snapshots(tables, choice.source)
    except StorageError:
        current = _current_snapshots(tables)
        is_whole = choice == MarketChoice(source=choice.source)
        if is_whole or choice.source not in tables.read(RETURNS, columns=["source"])["source"]:
            raise
        return current


def _pinned_row(tables: Warehouse, source: str) -> dict[str, Any]:
    """Row of a source in `gold.market_panel`.

    Raises:
        StorageError: if the source has no panel.
    """
    panels = tables.read_whole(MARKET_PANEL, MARKET_PANEL.schema.names())
    row = panels.filter(pl.col("source") == source)
    if row.is_empty():
        known = ", ".join(sorted(panels["source"])) or "none"
        raise StorageError(
            f"there is no panel of source {source!r} (sources with a panel: {known}); {_remedy(tables, source)}"
        )
    return row.row(0, named=True)


def _remedy(tables: Warehouse, source: str) -> str:
    """Steps that build a panel of a source, or why its bars form none, as the end of a sentence."""
    if source in tables.read(RETURNS, columns=["source"])["source"] and (problem := panel_problem(tables, source)):
        return problem
    market = read_market(tables.home)
    if source not in market.calendars.by_source:
        return f"list a source named {source} in data/market.yaml, then `nvtrader ingest` builds it"
    folder = landing_folder(tables.home, source)
    is_empty = source in market.landing_names and not landed_paths(folder)
    steps = [f"put its files into {folder.relative_to(tables.home.root)}"] if is_empty else []
    return ", then ".join([*steps, "`nvtrader ingest` builds it"])


@dataclass(frozen=True)
class Panels:
    """Pinned panels of a home; a panel is read again only after its pinned snapshots change."""

    tables: Warehouse
    known: dict[MarketChoice, MarketPanel] = field(default_factory=dict)

    def read(self, choice: MarketChoice) -> MarketPanel:
        """Read the panel of a market choice at the currently pinned snapshots.

        Raises:
            StorageError: if the source has no panel.
            ValueError: if the bars of these symbols do not form a panel.
        """
        snapshots, known = _choice_snapshots(self.tables, choice), self.known.get(choice)
        if known is None or known.snapshot_ids != snapshots:
            known = read_panel(self.tables, choice.source, choice.symbols, choice.max_gap, snapshots, choice.features)
            self.known[choice] = known
        return known

    def symbols_and_features(self, choice: MarketChoice) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Read symbols and feature names of a market choice's panel; raises as `read`."""
        if choice == MarketChoice(source=choice.source):  # the row describes the whole source with the default gap
            row = _pinned_row(self.tables, choice.source)
            return tuple(row["symbols"]), tuple(row["feature_names"])
        panel = self.read(choice)
        return panel.symbols, panel.feature_names


@dataclass(frozen=True)
class PinnedPanels:
    """Result of pinning: number of panels, and what they lack."""

    n_panels: int
    left_out: dict[str, str]  # source to why it has no panel, or only one without some symbols

    @property
    def summary(self) -> str:
        """Summary in one line."""
        without = "".join(f"; {source}: {why}" for source, why in self.left_out.items())
        return f"{self.n_panels} panels pinned{without}"


def pin_panels(tables: Warehouse, at: datetime) -> PinnedPanels:
    """Build each source's panel from the current snapshots and record it in `gold.market_panel`."""
    known = _current_snapshots(tables)
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
    return PinnedPanels(len(rows) - 1, left_out)


def _current_snapshots(tables: Warehouse) -> dict[str, int]:
    snapshots = {table.name: tables.snapshot_id(table) for table in PINNED}
    return {name: snapshot for name, snapshot in snapshots.items() if snapshot is not None}


def panel_problem(tables: Warehouse, source: str) -> str | None:
    """Reason why the current bars of a source form no panel, or None."""
    snapshots = _current_snapshots(tables)
    if len(snapshots) < len(PINNED):
        return "its returns and features are not derived; `nvtrader ingest` derives them"
    try:
        read_panel(tables, source, snapshot_ids=snapshots)
    except ValueError as error:
        return str(error)
    return None


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


def _with_stored_years(deliveries: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """Set the years of each delivery to those of its stored rows."""
    key = [*FILE_KEY, "digest"]
    years = stored.group_by(key).agg(pl.col("year").cast(pl.Int32).sort().alias("years"))
    joined = deliveries.drop("years").join(years, on=key, how="left", maintain_order="left")
    return joined.with_columns(pl.col("years").fill_null([])).select(DELIVERIES.schema.names())
