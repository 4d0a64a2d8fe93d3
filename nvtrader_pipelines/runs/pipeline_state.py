"""State in which the graph was last up to date, so that nothing to do is recognized at once."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.runs.input_digests import contest_digest, entrants_specs, promotion_digest
from nvtrader_pipelines.runs.market_state import has_ended_sessions, market_digest
from nvtrader_pipelines.storage.file_problems import read_state
from nvtrader_pipelines.storage.files import escape_name, fingerprint, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

FILE = "pipeline.json"


def pipeline_digest(store: Store, names: Sequence[str]) -> str:
    """Digest of all that the graph reads: files, runs, code, and the day."""
    home, day = store.home, datetime.now(UTC).date().isoformat()
    promotion = promotion_digest(home, contest_digest(store))
    code = code_of(*entrants_specs(store))
    state = [*names, day, market_digest(home), code, promotion, *_file_digests(home)]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def read_pipeline_state(store: Store, names: Sequence[str]) -> list[str] | None:
    """Read the partition keys that are up to date; None if something has changed."""
    known = read_state(store.home.warehouse / FILE)
    if known is None or not store.home.duckdb_file.exists() or has_ended_sessions(store):
        return None
    return known["keys"] if known["digest"] == pipeline_digest(store, names) else None


def record_pipeline_state(store: Store, names: Sequence[str], keys: Sequence[str]) -> None:
    """Record that these partition keys, the judgement and the views are up to date."""
    content = {"digest": pipeline_digest(store, names), "keys": list(keys)}
    write_atomically(store.home.warehouse / FILE, json.dumps(content).encode())


def _file_digests(home: Home) -> Iterator[str]:
    policies = (path for kind in ("*.zip", "*.json") for path in home.policies.rglob(kind))
    for path in sorted([home.market_file, *home.experiments.rglob("*"), *policies]):
        if path.is_file():
            yield f"{escape_name(path.relative_to(home.root))} {fingerprint(path)}"
