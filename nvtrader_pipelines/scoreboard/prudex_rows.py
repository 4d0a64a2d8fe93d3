"""Rows of the PRUDEX-Compass, read from the tables: latest runs and needed columns only."""

import hashlib
from collections.abc import Sequence

import polars as pl

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.prudex.explainability import Answer, Surrogate, surrogate_of_walk
from nvtrader_pipelines.evaluation.prudex.holdings import WindowHoldings
from nvtrader_pipelines.evaluation.prudex.record import ACTIONS, CURVES, RETURNS, RUNS, PrudexRecord, latest_runs
from nvtrader_pipelines.experiments.code_digest import code_digest
from nvtrader_pipelines.market.features import FEATURES as MARKET_FEATURES
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.judgements import Result, ResultStore
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, FEATURES, MARKET_PANEL
from nvtrader_pipelines.storage.tables import RETURNS as RETURNS_TABLE


def read_prudex_record(store: Store) -> PrudexRecord:
    """Read each experiment's latest completed run per market, and the market rows of their years."""
    every = walk_forward_runs(store, [*RUNS, "spec_hash", "window_first", "window_last", "validation_only"])
    runs = latest_runs(every.filter(~pl.col("validation_only")))
    where = {"spec_hash": runs["spec_hash"].unique().to_list(), "run_id": runs["run_id"].to_list()}
    actions = store.tables.read(ACTION_LOGS, where, ACTIONS)
    # the first decision precedes the first test session, perhaps in the year before
    spans = pl.int_ranges(pl.col("window_first").dt.year() - 1, pl.col("window_last").dt.year() + 1)
    years = runs.select(spans).to_series().explode().unique().drop_nulls().to_list()
    market = {"source": runs["source"].unique().to_list(), "year": years}
    columns = ("source", "symbol", "session", *(feature.name for feature in MARKET_FEATURES))
    features = store.tables.read(FEATURES, market, columns).join(
        actions.select("session").unique(), on="session", how="semi"
    )
    panels = store.tables.read(MARKET_PANEL, columns=["source"])
    return PrudexRecord(
        runs.select(RUNS),
        store.tables.read(EQUITY_CURVES, where, CURVES),
        actions,
        store.tables.read(RETURNS_TABLE, market, RETURNS),
        features,
        store.read_calendars(),
        tuple(sorted({*panels["source"], *runs["source"]})),
        _exclusion_note(latest_runs(every.filter("validation_only"))),
    )


def stored_surrogate(results: ResultStore) -> Surrogate:
    """Surrogate R² that is fitted once for the same weights, features and code."""
    of_features: dict[int, bytes] = {}  # by identity of the frame
    code = code_digest(("evaluation.prudex.surrogates",))

    def surrogate(walk: Sequence[WindowHoldings], features: pl.DataFrame) -> Answer:
        if id(features) not in of_features:
            of_features[id(features)] = features.hash_rows().to_numpy().tobytes()
        content = hashlib.sha256(f"surrogate|{code}|{features.columns}".encode() + of_features[id(features)])
        for holdings in walk:
            content.update(repr(holdings.symbols).encode() + holdings.sessions.tobytes() + holdings.weights.tobytes())
        known = results.get(content.hexdigest())
        if known is None:
            known = results[content.hexdigest()] = Result(surrogate_of_walk(walk, features))
        value, note = known.document
        return value, note

    return surrogate


def _exclusion_note(runs: pl.DataFrame) -> str:
    """Note on runs left out because they are for validation only; empty without any."""
    named = [f"{name} (run {short_id(run_id)})" for name, run_id in runs.select("experiment", "run_id").iter_rows()]
    return f"left out, for validation only: {', '.join(named)}" if named else ""
