import threading

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import ACTION_LOGS, CLEAN_BARS, EQUITY_CURVES, RUNS, TABLES
from nvtrader_pipelines.storage.views import create_views, publish, query_views, read_query, run_views
from tests.storage.table_rows import SPEC_HASH, bar_rows, conform, run_keys, run_rows, start

READER = """
import duckdb, os, sys
n_opens = 0
while not os.path.exists(sys.argv[2]):
    with duckdb.connect(sys.argv[1], read_only=True) as connection:
        values = connection.sql("SELECT DISTINCT adj_close, count(*) OVER () FROM silver.clean_bars").fetchall()
    assert len(values) == 1 and values[0][1] == 9, values
    n_opens += 1
    if n_opens == 1:
        print("reading", flush=True)
print(n_opens)
"""


def test_the_views_show_the_rows_that_the_tables_hold_now(store, home):
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019, 2020], 1.0), [2019, 2020])
    store.tables.replace_years(
        CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], 2.0), [2020]
    )  # the files replaced still lie there
    publish(store)
    assert_frame_equal(
        query_views(store, "FROM silver.clean_bars ORDER BY year, symbol"), store.tables.read(CLEAN_BARS)
    )


def test_every_table_has_a_view_with_its_columns_before_anything_is_written(store, home):
    publish(store)
    for table in TABLES:
        found = query_views(store, f"FROM {table.name}")
        assert (found.height, found.columns) == (0, table.schema.names())


def test_the_views_carry_the_meaning_of_the_columns(store, home):
    publish(store)
    found = query_views(
        store, "SELECT comment FROM duckdb_columns() WHERE table_name = 'returns' AND column_name = 'span'"
    )
    assert found.item() == "sessions since the previous bar; 1 without a gap"


def test_a_connection_in_memory_has_the_same_views(store):
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    with duckdb.connect() as connection:
        create_views(connection, store)
        assert read_query(connection, "SELECT count(*) FROM silver.clean_bars").item() == 3
        assert read_query(connection, "SET threads = 1").is_empty()


def test_rows_written_before_a_column_existed_are_null_in_the_view(store, monkeypatch):
    narrow = Table("silver", "clean_bars", CLEAN_BARS.schema.without("line"), CLEAN_BARS.partition_by)
    store.tables.replace_years(narrow, bar_rows(narrow, [2019]), [2019])
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]).with_columns(line=pl.lit(4, pl.Int64)), [2020])
    with duckdb.connect() as connection:
        create_views(connection, store)
        found = read_query(connection, "SELECT DISTINCT year, line FROM silver.clean_bars ORDER BY year")
    assert found.rows() == [(2019, None), (2020, 4)]


def test_actions_are_seen_asset_by_asset(store, home):
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


@pytest.mark.slow
def test_another_process_opens_the_views_at_any_moment_while_they_are_published(store, home):
    years = [2018, 2019, 2020]
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, years, 0.0), years)
    publish(store)
    stop = home.root / "stop"
    with start(READER, home.duckdb_file, stop) as reader:
        assert reader.stdout.readline() == "reading\n"
        for version in range(1, 9):
            store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, years, float(version)), years)
            publish(store)
        stop.touch()
        n_opens = int(reader.stdout.readline())
    assert reader.returncode == 0
    assert n_opens > 3


def test_publishers_at_once_take_turns(store, home):
    threads = [threading.Thread(target=publish, args=(store,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert query_views(store, "SELECT count(*) FROM rl.runs").item() == 0


def test_a_write_ahead_log_left_by_a_killed_client_does_not_block_the_new_views(store, home):
    publish(store)
    script = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE mine AS SELECT 1 AS x")
print("open", flush=True)
time.sleep(60)
"""
    with start(script, home.duckdb_file) as client:
        assert client.stdout.readline() == "open\n"
        publish(store)  # not blocked by the client's lock
        client.kill()
    (home.warehouse / "nvtrader.duckdb.wal").write_bytes(b"what a killed client leaves")
    publish(store)
    assert query_views(store, "SELECT count(*) FROM rl.runs").item() == 0
    assert not (home.warehouse / "nvtrader.duckdb.wal").exists()


def test_what_a_killed_publisher_left_is_cleared(store, home):
    publish(store)
    left = home.warehouse / ".nvtrader.duckdb.123.tmp"
    left.write_bytes(b"half")
    publish(store)
    assert not left.exists()


def test_nothing_published_yet_is_said_in_one_sentence(store):
    with pytest.raises(
        StorageError, match=r"there are no tables yet: .*nvtrader\.duckdb is missing; run `nvtrader materialize` first"
    ):
        query_views(store, "SELECT 1")


def test_a_wrong_query_is_a_storage_error_with_duckdbs_words(store, home):
    publish(store)
    with pytest.raises(StorageError, match=r"the query failed: .*clean_bras does not exist"):
        query_views(store, "FROM silver.clean_bras")


def test_views_of_a_moved_warehouse_say_what_to_do(store, home, tmp_path):
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    publish(store)
    home.root.rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="the warehouse was moved or files were deleted"):
        query_views(Store(Home(tmp_path / "elsewhere")), "FROM silver.clean_bars")


def test_a_home_with_quotes_and_spaces_in_its_name_works(tmp_path):
    from nvtrader_pipelines.storage.store import Store

    home = Home(tmp_path / "it's my # home")
    store = Store(home)
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    publish(store)
    assert query_views(store, "SELECT count(*) FROM silver.clean_bars").item() == 3
    assert len(store.tables.read(CLEAN_BARS)) == 3


def test_a_column_that_comes_twice_gets_a_number():
    with duckdb.connect() as own:
        assert read_query(own, "SELECT 1 AS a, 2 AS a, 3 AS b").columns == ["a", "a_1", "b"]


def test_every_completed_run_has_views_of_its_own(store, home):
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


def test_the_ledger_can_be_queried_like_any_table(store, home):
    key = store.ledger.register(ExperimentSpec(name="a"))
    publish(store)
    found = query_views(store, "SELECT partition_key, name, created_at FROM ledger.versions")
    assert (found["partition_key"].item(), found["name"].item()) == (key, "a")
    assert found.schema["created_at"] == pl.Datetime("us", "Etc/UTC")
    names = query_views(store, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'ledger' ORDER BY ALL")
    assert names["table_name"].to_list() == ["events", "policies", "runs", "specs", "versions"]
    comment = "SELECT comment FROM duckdb_columns() WHERE table_name = 'versions' AND column_name = 'partition_key'"
    assert query_views(store, comment).item() == "name@hash8"


def test_the_mirrored_ledger_is_as_new_as_the_views(store, home):
    publish(store)
    store.ledger.register(ExperimentSpec(name="a"))
    assert query_views(store, "SELECT count(*) FROM ledger.versions").item() == 0
    publish(store)
    assert query_views(store, "SELECT count(*) FROM ledger.versions").item() == 1
