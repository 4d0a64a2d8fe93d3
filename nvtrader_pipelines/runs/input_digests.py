"""Digests of the inputs of the contest and the promotion gate."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress

import polars as pl

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.experiments.code_digest import contest_code, promotion_code
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import fingerprint, read_regular_file
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.specs import entrant_files, read_entrant
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL


def contest_digest(store: Store) -> str:
    """Digest of the contest: runs, archived names, entrants, windows, panels and code."""
    runs = walk_forward_runs(store, ["run_id", "finished_at", "partition_key"]).sort("run_id")
    panels = store.tables.read(MARKET_PANEL, columns=["source", "digest", "calendar"]).sort("source")
    archived = sorted(store.ledger.archived_names())
    code = contest_code(*entrants_specs(store, runs))
    content = [runs.select("run_id", "finished_at").rows(), panels.rows(), archived, code]
    state = hashlib.sha256(json.dumps(content, default=str).encode())
    note_read(store.home.entrants)
    for path in sorted(path for path in store.home.entrants.rglob("*") if path.is_file()):
        state.update(os.fsencode(path.relative_to(store.home.entrants)) + f"|{fingerprint(path)}\n".encode())
    state.update(read_regular_file(store.home.contests))
    return state.hexdigest()[:32]


def entrants_specs(store: Store, runs: pl.DataFrame | None = None) -> Iterator[Component]:
    """Specs of the runs and of the files of entrants; the contest names those that cannot be read."""
    runs = walk_forward_runs(store, ["partition_key"]) if runs is None else runs
    for partition_key in runs["partition_key"].unique(maintain_order=True):
        with suppress(StorageError):
            yield store.ledger.read(partition_key)
    for path in entrant_files(store.home):
        with suppress(StorageError):
            yield read_entrant(path)


def promotion_digest(home: Home, contest: str) -> str:
    """Digest of the promotion gate's inputs: the contest, the gate's own file and its code."""
    gate = read_regular_file(home.promotion_file)
    return hashlib.sha256(contest.encode() + b"|" + gate + promotion_code().encode()).hexdigest()[:32]
