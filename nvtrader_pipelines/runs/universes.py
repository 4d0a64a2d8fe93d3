"""Universes of runs and trials, source and names, which lists that rank keep apart; and their sectors."""

import json
from collections.abc import Sequence

import polars as pl

from nvtrader_pipelines.components.text import name_symbols
from nvtrader_pipelines.storage.compliance_files import SECTORS, read_compliance
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL
from nvtrader_pipelines.storage.tables.research import SESSIONS

Universe = tuple[str, tuple[str, ...]]  # source and names, sorted; no names where they are unknown


def with_market(store: Store, rows: pl.DataFrame) -> pl.DataFrame:
    """Add `market`, by which rows are ranked: the source, and the names where a source has several universes.

    Args:
        store: home of the rows.
        rows: runs with source and spec_hash, and trials with session_id.
    """
    known = _universes(store)
    keys = [pl.col(name) for name in ("spec_hash", "session_id") if name in rows.columns]
    names = rows.select("source", key=pl.coalesce(*keys)).rows()
    own = [known.get(key, (source, ())) for source, key in names]
    by_source: dict[str, list[Universe]] = {}
    for universe in dict.fromkeys(own):
        by_source.setdefault(universe[0], []).append(universe)
    return rows.with_columns(
        market=pl.Series([_label(universe, by_source[universe[0]]) for universe in own], dtype=pl.String)
    )


def missing_sectors(home: Home, symbols: Sequence[str]) -> str | None:
    """Say which symbols have no sector, with the line that adds one; None if all have.

    Raises:
        StorageError: if the file of the sectors is not valid.
    """
    sectors = read_compliance(home).sectors
    without = [symbol for symbol in symbols if symbol not in sectors]
    if not without:
        return None
    return (
        f"{name_symbols(without)}: no sector is known, so every plan with such a name waits for a person; add a line "
        f"for each to data/compliance/{SECTORS}, below its header symbol,sector: {without[0]},SECTOR"
    )


def _label(universe: Universe, of_source: list[Universe]) -> str:
    source, symbols = universe
    if len(of_source) == 1:
        return source
    label = f"{source}, {name_symbols(symbols) if symbols else 'unknown symbols'}"
    twins = [universe for universe in of_source if len(universe[1]) == len(symbols) and universe[1][:5] == symbols[:5]]
    return label if len(twins) == 1 else f"{label}, choice {twins.index(universe) + 1}"


def _universes(store: Store) -> dict[str, Universe]:
    """Universe by spec hash of a version, or id of a search session."""
    from nvtrader_pipelines.experiments.spec import MarketChoice  # lists of runs do not need it

    panels = dict(store.tables.read(MARKET_PANEL, columns=["source", "symbols"]).iter_rows())
    universes: dict[str, Universe] = {}
    for spec_hash, content in store.ledger.versions().select("spec_hash", "content").iter_rows():
        market = json.loads(content).get("market", {})
        source = market.get("source", MarketChoice().source)
        universes[spec_hash] = source, tuple(sorted(market.get("symbols") or panels.get(source, ())))
    for session_id, source, symbols in (
        store.tables.read(SESSIONS, columns=["session_id", "source", "symbols"]).drop_nulls().iter_rows()
    ):
        universes[session_id] = source, tuple(sorted(symbols))
    return universes
