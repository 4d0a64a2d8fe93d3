import json

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.portfolio.pipeline.stage import Guards
from nvtrader_pipelines.storage.files import append_rotated
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import ACTION_LOGS, CLEAN_BARS, EQUITY_CURVES, RUNS, TABLES, TRAJECTORIES
from nvtrader_pipelines.storage.tables.research import ITERATION, SPANS
from nvtrader_pipelines.storage.tables.rl import run_views
from nvtrader_pipelines.storage.views.published_file import read_query
from nvtrader_pipelines.storage.views.publishing import publish
from nvtrader_pipelines.storage.views.queries import query_views
from nvtrader_pipelines.storage.views.view_definitions import create_views
from tests.storage.table_rows import SPEC_HASH, bar_rows, conform, run_keys, run_rows

pytestmark = pytest.mark.slow


def test_views_show_the_current_rows_of_the_tables(store, home):
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019, 2020], 1.0), [2019, 2020])
    store.tables.replace_years(
        CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], 2.0), [2020]
    )  # the replaced files are still on disk
    publish(store)
    assert_frame_equal(
        query_views(store, "FROM silver.clean_bars ORDER BY year, symbol"), store.tables.read(CLEAN_BARS)
    )


def test_unwritten_tables_have_empty_views_with_their_columns(published_store):
    with duckdb.connect(str(published_store.home.duckdb_file), read_only=True) as client:
        for table in TABLES:
            rows = read_query(client, f"FROM {table.name}")
            assert (rows.height, rows.columns) == (0, table.schema.names())


def test_views_have_column_comments(published_store):
    found = query_views(
        published_store, "SELECT comment FROM duckdb_columns() WHERE table_name = 'returns' AND column_name = 'span'"
    )
    assert found.item() == "sessions since the previous bar; 1 without a gap"


def test_in_memory_connection_has_the_views(store):
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    with duckdb.connect() as connection:
        create_views(connection, store)
        assert read_query(connection, "SELECT count(*) FROM silver.clean_bars").item() == 3
        assert read_query(connection, "SET threads = 1").is_empty()


def test_view_shows_null_for_rows_older_than_a_column(store, monkeypatch):
    narrow = Table("silver", "clean_bars", CLEAN_BARS.schema.without("line"), CLEAN_BARS.partition_by)
    store.tables.replace_years(narrow, bar_rows(narrow, [2019]), [2019])
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]).with_columns(line=pl.lit(4, pl.Int64)), [2020])
    with duckdb.connect() as connection:
        create_views(connection, store)
        found = read_query(connection, "SELECT DISTINCT year, line FROM silver.clean_bars ORDER BY year")
    assert found.rows() == [(2019, None), (2020, 4)]


def test_actions_by_asset_view_unnests_the_lists(store, home):
    row = {
        "spec_hash": SPEC_HASH,
        "run_id": "r",
        "policy": "p",
        "step": 0,
        "symbols": ["AAA", "BBB", "cash"],
        "target_weights": [0.5, 0.5, 0.0],
        "executed_weights": [0.4, 0.5, 0.1],
        "trades": [0.4, 0.5, -0.9],
    }
    store.tables.replace(ACTION_LOGS, conform(ACTION_LOGS, pl.DataFrame([row])), run_keys("r"))
    publish(store)
    found = query_views(store, "SELECT symbol, target_weight, executed_weight, trade FROM rl.actions_by_asset")
    assert found.rows() == [("AAA", 0.5, 0.4, 0.4), ("BBB", 0.5, 0.5, 0.5), ("cash", 0.0, 0.1, -0.9)]


def test_guards_view_has_the_decisions_with_guards(store, home):
    guards = [Guards(n_shutdown=2, probe=0.05), None, Guards(drawdown=True, scale=0.5, turnover_penalty=0.0075)]
    infos = [json.dumps({"reward_terms": {}, "guards": each and each._asdict()}) for each in guards]
    infos.append('{"reward_terms": {}, "truncated": true}')
    rows = run_rows(TRAJECTORIES, "r", len(infos), policy="p").with_columns(pl.Series("info", infos))
    store.tables.replace(TRAJECTORIES, rows, run_keys("r"))
    publish(store)
    found = query_views(store, f"SELECT step, {', '.join(Guards._fields)} FROM rl.guards ORDER BY step")
    assert found.rows() == [(0, *guards[0]), (2, *guards[2])]


def test_completed_run_has_its_own_views(store, home):
    ids = ["0123456789abcdef", "fedcba9876543210"]
    for number, run_id in enumerate(ids):
        rows = run_rows(EQUITY_CURVES, run_id, equity=float(number))
        store.tables.replace(EQUITY_CURVES, rows, run_keys(run_id))
        store.tables.replace(RUNS, run_rows(RUNS, run_id, 1, snapshot_ids="{}"), {"run_id": [run_id]})
    publish(store)
    assert query_views(store, "FROM rl_equity_curves_run_fedcba98")["equity"].to_list() == [1.0] * 3
    assert query_views(store, "SELECT count(*) FROM rl.equity_curves").item() == 6
    found = query_views(store, "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal")
    assert set(found["view_name"]) == {view for run_id in ids for view in run_views(run_id)}


def test_ledger_tables_can_be_queried_with_comments(store, home):
    key = store.ledger.register(ExperimentSpec(name="a"))
    publish(store)
    found = query_views(store, "SELECT partition_key, name, created_at FROM ledger.versions")
    assert (found["partition_key"].item(), found["name"].item()) == (key, "a")
    assert found.schema["created_at"] == pl.Datetime("us", "Etc/UTC")
    names = query_views(store, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'ledger' ORDER BY ALL")
    assert names["table_name"].to_list() == ["annotations", "events", "looks", "policies", "runs", "specs", "versions"]
    comment = "SELECT comment FROM duckdb_columns() WHERE table_name = 'versions' AND column_name = 'partition_key'"
    assert query_views(store, comment).item() == "name@hash8"


def test_spans_are_read_in_a_home_whose_path_looks_like_a_pattern(tmp_path):
    store = Store(Home(tmp_path / "a[b]*c"))
    span = {"name": ITERATION, "attributes": {"session": "s", "proposal": 1}}
    for file in ("spans.jsonl", "spans.jsonl.1"):
        append_rotated(store.home.spans_file.with_name(file), f"{json.dumps(span)}\n", 1000)
    publish(store)
    assert query_views(store, f"SELECT session_id, proposal FROM {SPANS.name}").rows() == [("s", 1), ("s", 1)]
