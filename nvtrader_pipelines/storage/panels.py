"""Market panels pinned to table snapshots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.calendar import Calendars, TradingCalendar
from nvtrader_pipelines.market.features import Feature, add_features
from nvtrader_pipelines.market.history import PriceHistory, price_history
from nvtrader_pipelines.market.look_ahead import require_causal_feature
from nvtrader_pipelines.market.panel import MarketPanel, build_panel
from nvtrader_pipelines.market.series import series_fields
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.landing_zone import landed_paths, landing_folder
from nvtrader_pipelines.storage.specs import read_market
from nvtrader_pipelines.storage.tables import DELIVERIES, FEATURES, MARKET_PANEL, PINNED, RETURNS, SERIES


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
        SeriesUnavailable: if an outside series that one of `features` reads is missing or has a gap.
    """
    snapshots = snapshot_ids or pinned_snapshots(tables, source)
    returns, known = (
        tables.read(table, {"source": [source]}, snapshot_id=snapshots[table.name]) for table in (RETURNS, FEATURES)
    )
    calendar = read_calendars(tables).of(source)
    series = read_series(tables, snapshots, features)
    for feature in features:
        require_causal_feature(feature, price_history(returns, calendar, series))
    known = add_features(returns, known, features, calendar, series)
    return build_panel(returns, known, calendar, symbols, max_gap, snapshots)


def read_history(tables: Warehouse, panel: MarketPanel) -> PriceHistory:
    """Read the prices of all names of the source of a panel, as it was built from them.

    Raises:
        StorageError: if the snapshot has expired.
    """
    snapshot_id = panel.snapshot_ids[RETURNS.name]
    return price_history(tables.read(RETURNS, {"source": [panel.source]}, snapshot_id=snapshot_id), panel.calendar)


def read_series(tables: Warehouse, snapshot_ids: Mapping[str, int], features: Iterable[Feature]) -> pl.DataFrame | None:
    """Read the outside series of some features at a snapshot: all if one is missing, none if there is no snapshot.

    Raises:
        StorageError: if the snapshot has expired.
    """
    fields, snapshot_id = series_fields(features), snapshot_ids.get(SERIES.name)
    if not fields or snapshot_id is None:
        return None
    series = tables.read(SERIES, snapshot_id=snapshot_id)
    of_fields = series.filter(pl.col("field").is_in(fields))
    return of_fields if of_fields["field"].n_unique() == len(fields) else series  # to name those that there are


def pinned_snapshots(tables: Warehouse, source: str) -> dict[str, int]:
    """Snapshot id by table name, as pinned for a source.

    Raises:
        StorageError: if the source has no panel.
    """
    row = _pinned_row(tables, source)
    snapshots = {table.name: row[f"{table.table}_snapshot_id"] for table in PINNED}
    return {name: snapshot for name, snapshot in snapshots.items() if snapshot is not None}


def _choice_snapshots(tables: Warehouse, choice: MarketChoice) -> dict[str, int]:
    """Snapshots of a market choice: those pinned, or the current ones of a source that has no panel as a whole.

    Raises:
        StorageError: if the source has no panel, and the choice is the whole source or the source has no returns.
    """
    try:
        return pinned_snapshots(tables, choice.source)
    except StorageError:
        current = current_snapshots(tables)
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

    def sources(self) -> list[str]:
        """Sources with a panel, sorted."""
        return sorted(self.tables.read_whole(MARKET_PANEL, ["source"])["source"])

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


def current_snapshots(tables: Warehouse) -> dict[str, int]:
    """Current snapshot id by name of a pinned table, as far as they have one."""
    snapshots = {table.name: tables.snapshot_id(table) for table in PINNED}
    return {name: snapshot for name, snapshot in snapshots.items() if snapshot is not None}


def panel_problem(tables: Warehouse, source: str) -> str | None:
    """Reason why the current bars of a source form no panel, or None."""
    snapshots = current_snapshots(tables)
    if not {RETURNS.name, FEATURES.name} <= snapshots.keys():
        return "its returns and features are not derived; `nvtrader ingest` derives them"
    try:
        read_panel(tables, source, snapshot_ids=snapshots)
    except ValueError as error:
        return str(error)
    return None
