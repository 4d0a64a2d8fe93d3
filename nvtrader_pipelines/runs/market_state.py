"""State of the market: delivery and digest of its inputs, and whether it was built from them."""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from nvtrader_pipelines.experiments.code_digest import market_code
from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.market.rules import SESSION_NOT_ENDED
from nvtrader_pipelines.market.sources.delivery import LANDING
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.file_problems import read_state
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.landing_zone import deliver_files, is_series_file, landing_fingerprint
from nvtrader_pipelines.storage.specs import read_market
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL, QUARANTINE


def deliver_prices(home: Home, files: Sequence[Path], source: str = LANDING) -> None:
    """Copy files of prices to where a landing source of the market reads them, and outside series beside them.

    Raises:
        StorageError: as `deliver_files`, or if the market has no such source for files of prices.
    """
    names = read_market(home).landing_names
    if source not in names and not all(is_series_file(file) for file in files):
        raise StorageError(
            f"data/market.yaml must list the source {source!r} of `kind: landing` for delivered files to be read, but "
            f"lists {', '.join(names) or 'none of that kind'}; add it there"
        )
    deliver_files(home, files, source)


def require_same_calendars(store: Store) -> None:
    """Raise if a source with runs has another calendar in `data/market.yaml` than its bars.

    Raises:
        StorageError: with the source and both calendars.
    """
    ingested = store.read_calendars()
    of_runs = set(store.ledger.runs(with_worlds=True)["source"])
    for source in read_market(store.home).sources:
        before = ingested.of(source.name).name
        if source.name in of_runs and source.calendar != before:
            raise StorageError(
                f"the source {source.name} must keep its calendar {before}, by which its runs were judged, but "
                f"data/market.yaml gives it {source.calendar}; add a source of another name with that calendar"
            )


def other_calendars(home: Home) -> list[TradingCalendar]:
    """Calendars of the home's markets other than New York's; none if `data/market.yaml` is invalid, as ingest says."""
    try:
        sources = read_market(home).sources
    except StorageError:
        return []
    names = dict.fromkeys(source.calendar for source in sources)
    return [TradingCalendar(name) for name in names if name != NEW_YORK.name]


def market_digest(home: Home) -> str:
    """Digest of the market's inputs: landed files, sources and code; plus the last session that ended if live."""
    market = read_market(home)
    live = [TradingCalendar(source.calendar) for source in market.sources if source.kind == "yahoo"]
    ended = ",".join(str(calendar.last_ended(datetime.now(UTC))) for calendar in live)
    content = "|".join((landing_fingerprint(home), market.model_dump_json(), market_code(market), ended))
    return hashlib.sha256(content.encode()).hexdigest()


def market_is_current(store: Store) -> bool:
    """Whether the market was built from the current inputs."""
    marker = read_state(store.home.warehouse / "market.json")
    is_built = marker is not None and marker.get("state") == market_digest(store.home) and has_panel(store)
    return is_built and not has_ended_sessions(store)


def has_ended_sessions(store: Store) -> bool:
    """Whether a session has ended whose bars wait in the quarantine for its end."""
    waiting = store.tables.read(QUARANTINE, {"rule": [SESSION_NOT_ENDED]}, ["source", "value"])
    if waiting.is_empty():
        return False
    calendars, at = store.read_calendars(), datetime.now(UTC)
    sessions = waiting.group_by("source").agg(pl.col("value").str.to_date().min())
    return any(session <= calendars.of(source).last_ended(at) for source, session in sessions.iter_rows())


def record_market_digest(home: Home, state: str) -> None:
    """Store the state that the market was built from; compute it before the build."""
    write_atomically(home.warehouse / "market.json", json.dumps({"state": state}).encode())


def has_panel(store: Store) -> bool:
    """Whether any source has a panel."""
    return bool(panel_sources(store))


def panel_sources(store: Store) -> list[str]:
    """Sources that have a panel, in alphabetical order."""
    return sorted(store.tables.read(MARKET_PANEL, columns=["source"])["source"])
