"""Digests of what an outcome was made from: the market, the contest, the question put to the gate."""

import hashlib
import json
from datetime import UTC, datetime

from nvtrader_pipelines.experiments.identity import run_code, scoring_code
from nvtrader_pipelines.runs.planning import has_panel
from nvtrader_pipelines.runs.tables import walk_forward_runs
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.landing_zone import landing_fingerprint
from nvtrader_pipelines.storage.specs import read_market
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL


def market_state(home: Home) -> str:
    """A digest of what the market is made of: landed files, sources, code; and the day where a source is live."""
    market = read_market(home)
    live = any(source.kind == "yahoo" for source in market.sources)
    day = datetime.now(UTC).date().isoformat() if live else ""
    content = "|".join((landing_fingerprint(home), market.model_dump_json(), run_code(), day))
    return hashlib.sha256(content.encode()).hexdigest()


def market_is_current(store: Store) -> bool:
    """Whether the market was last built from what is there now."""
    marker = store.home.warehouse / "market.json"
    return (
        marker.exists()
        and json.loads(marker.read_bytes()).get("state") == market_state(store.home)
        and has_panel(store)
    )


def contest_state(store: Store) -> str:
    """A digest of what competes: the completed runs as last tested, the entrants' files, the market, the code."""
    runs = walk_forward_runs(store, ["run_id", "finished_at"]).sort("run_id")
    panels = store.tables.read(MARKET_PANEL, columns=["source", "digest"]).sort("source")
    state = hashlib.sha256(json.dumps([runs.rows(), panels.rows(), scoring_code()], default=str).encode())
    for path in sorted(path for path in store.home.entrants.rglob("*") if path.is_file()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        state.update(f"{path.relative_to(store.home.entrants)}|{digest}\n".encode())
    return state.hexdigest()[:32]


def question_state(home: Home, contest: str) -> str:
    """A digest of what the promotion gate is asked: what competes, and the gate's own file."""
    gate = home.promotion_file.read_bytes() if home.promotion_file.exists() else b""
    return hashlib.sha256(contest.encode() + b"|" + gate).hexdigest()[:32]


def remember_market(home: Home, state: str) -> None:
    """Keep the state the market was built from; take it before the build begins."""
    write_atomically(home.warehouse / "market.json", json.dumps({"state": state}).encode())
