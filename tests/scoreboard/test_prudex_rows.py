import datetime as dt

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.prudex import prudex_compass
from nvtrader_pipelines.evaluation.prudex.explainability import surrogate_of_walk
from nvtrader_pipelines.evaluation.prudex.holdings import WindowHoldings
from nvtrader_pipelines.evaluation.prudex.record import ACTIONS, CURVES, RETURNS, RUNS
from nvtrader_pipelines.scoreboard.prudex_rows import read_prudex_record, stored_surrogate
from nvtrader_pipelines.storage import tables
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.judgements import Result
from nvtrader_pipelines.storage.store import Store
from tests.evaluation.prudex.records import market_of, run_of
from tests.homes import copy_home
from tests.storage.table_rows import SPEC_HASH, conform

pytestmark = pytest.mark.slow

KINDS = {"first": "walk_forward", "latest": "walk_forward", "replayed": "replay", "purged": "walk_forward"}


def stored(table, rows, **more):
    return conform(table, rows.with_columns(**{name: pl.lit(value) for name, value in more.items()}))


def yearly(rows):
    return rows.with_columns(year=pl.col("session").dt.year())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Home with two runs of one experiment, a replay and a newer validation-only run; read it, never write it."""
    store = Store(Home(tmp_path_factory.mktemp("recorded") / "home"))
    store.home.landing.mkdir(parents=True)
    runs = {run_id: run_of("ppo", run_id, seed=day, days=day) for day, run_id in enumerate(KINDS)}
    span = {"snapshot_ids": "{}", "window_first": dt.date(2015, 1, 5), "window_last": dt.date(2015, 12, 14)}
    for table, part in ((tables.RUNS, 0), (tables.EQUITY_CURVES, 1), (tables.ACTION_LOGS, 2)):
        more = {"spec_hash": SPEC_HASH, **(span if table is tables.RUNS else {})}
        kinds = {
            run_id: {"kind": kind, "validation_only": run_id == "purged"} if table is tables.RUNS else {}
            for run_id, kind in KINDS.items()
        }
        rows = [stored(table, run[part], **more, **kinds[run_id]) for run_id, run in runs.items()]
        store.tables.replace(table, pl.concat(rows), {})
    returns, features = (yearly(rows) for rows in market_of())
    elsewhere = returns.with_columns(source=pl.lit("other"))
    later = returns.with_columns(pl.col("session").dt.offset_by("1y"), year=pl.lit(2016))
    store.tables.replace(tables.RETURNS, stored(tables.RETURNS, pl.concat([returns, elsewhere, later])), {})
    store.tables.replace(tables.FEATURES, stored(tables.FEATURES, features.drop("momentum"), momentum_12_1=0.5), {})
    return store


@pytest.fixture(scope="module")
def record(recorded):
    """Record of that home."""
    return read_prudex_record(recorded)


def test_record_holds_the_latest_run_of_an_experiment(record):
    assert record.runs["run_id"].to_list() == ["latest"]
    assert {*record.curves["run_id"], *record.actions["run_id"]} == {"latest"}


def test_validation_only_run_is_left_out_with_a_note(record):
    assert "ppo (run purged)" in record.left_out
    assert prudex_compass(record).note.startswith(record.left_out)


def test_record_holds_only_needed_columns_and_market(record):
    columns = (RUNS, CURVES, ACTIONS, RETURNS)
    frames = (record.runs, record.curves, record.actions, record.returns)
    assert [tuple(frame.columns) for frame in frames] == list(columns)
    assert record.returns["source"].unique().to_list() == ["sample"]
    assert record.returns["session"].dt.year().unique().to_list() == [2015]


def test_markets_of_the_home_count_with_and_without_runs(recorded, record, tmp_path):
    store = Store(copy_home(recorded.home, tmp_path / "home"))
    panel = pl.DataFrame({"source": ["coins"], "calendar": ["24/7"]})
    store.tables.replace(tables.MARKET_PANEL, conform(tables.MARKET_PANEL, panel), {})
    assert read_prudex_record(store).markets == ("coins", "sample")
    assert record.markets == ("sample",)


def test_features_are_of_decision_sessions(record):
    assert set(record.features["session"]) == set(record.actions["session"])
    assert record.features["momentum_12_1"].unique().to_list() == [0.5]


def test_home_without_runs_gives_an_empty_record(store):
    record = read_prudex_record(store)
    assert not any(map(len, (record.runs, record.curves, record.actions, record.returns, record.markets)))


def test_prudex_table_stores_the_compass(store, record):
    answers = prudex_compass(record).table
    store.tables.replace(tables.PRUDEX, answers, {})
    assert store.tables.read(tables.PRUDEX).equals(answers)


def test_surrogate_of_the_same_walk_is_fitted_once():
    days = np.arange("2020-01-01", "2020-03-01", dtype="datetime64[D]")
    generator = np.random.default_rng(0)
    walk = [WindowHoldings("run", "sample", "a", "ensemble", 0, ("A", "B"), days, generator.random((len(days), 2)))]
    features = pl.DataFrame(
        {
            "source": "sample",
            "symbol": ["A", "B"] * len(days),
            "session": np.repeat(days, 2),
            "momentum": generator.random(2 * len(days)),
        }
    )
    results = {}
    first = stored_surrogate(results)(walk, features)
    assert first == surrogate_of_walk(walk, features)
    (digest,) = results
    results[digest] = Result([0.5, None])
    assert stored_surrogate(results)(walk, features) == (0.5, None)
    changed = features.with_columns(pl.col("momentum") + 1.0)
    assert stored_surrogate(results)(walk, changed) == surrogate_of_walk(walk, changed)
