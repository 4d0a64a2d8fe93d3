"""Digests of the inputs of the contest and the promotion gate."""

import hashlib
import json
import os

from nvtrader_pipelines.experiments.code_digest import promotion_code, scoring_code
from nvtrader_pipelines.experiments.installed_parts import installed_parts_digest
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.files import fingerprint, read_regular_file
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL


def contest_digest(store: Store) -> str:
    """Digest of the contest: runs, archived names, entrants, windows, panels, code and parts."""
    parts = [digest] if (digest := installed_parts_digest()) else []
    runs = walk_forward_runs(store, ["run_id", "finished_at"]).sort("run_id")
    panels = store.tables.read(MARKET_PANEL, columns=["source", "digest"]).sort("source")
    archived = sorted(store.ledger.archived_names())
    content = [runs.rows(), panels.rows(), archived, scoring_code(), *parts]
    state = hashlib.sha256(json.dumps(content, default=str).encode())
    for path in sorted(path for path in store.home.entrants.rglob("*") if path.is_file()):
        state.update(os.fsencode(path.relative_to(store.home.entrants)) + f"|{fingerprint(path)}\n".encode())
    state.update(read_regular_file(store.home.contests))
    return state.hexdigest()[:32]


def promotion_digest(home: Home, contest: str) -> str:
    """Digest of the promotion gate's inputs: the contest, the gate's own file and its code."""
    gate = read_regular_file(home.promotion_file)
    return hashlib.sha256(contest.encode() + b"|" + gate + promotion_code().encode()).hexdigest()[:32]
