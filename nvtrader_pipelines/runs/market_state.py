"""State of the market: a digest of its inputs, and whether it was built from the current ones."""

import hashlib
import json
from datetime import UTC, datetime

from nvtrader_pipelines.experiments.installed_parts import code_of
from nvtrader_pipelines.storage.damage.states import read_state
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.landing_zone import landing_fingerprint
from nvtrader_pipelines.storage.specs import read_market
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL


def market_digest(home: Home) -> str:
    """Digest of the market's inputs: landed files, sources and code; plus the day if live."""
    market = read_market(home)
    live = any(source.kind == "yahoo" for source in market.sources)
    day = datetime.now(UTC).date().isoformat() if live else ""
    content = "|".join((landing_fingerprint(home), market.model_dump_json(), code_of(market), day))
    return hashlib.sha256(content.encode()).hexdigest()


def market_is_current(store: Store) -> bool:
    """Whether the market was built from the current inputs."""
    marker = read_state(store.home.warehouse / "market.json")
    return marker is not None and marker.get("state") == market_digest(store.home) and has_panel(store)


def record_market_digest(home: Home, state: str) -> None:
    """Store the state that the market was built from; compute it before the build."""
    write_atomically(home.warehouse / "market.json", json.dumps({"state": state}).encode())


def has_panel(store: Store) -> bool:
    """Whether any source has a panel."""
    return not store.tables.read(MARKET_PANEL, columns=["source"]).is_empty()
