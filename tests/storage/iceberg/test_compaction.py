import datetime as dt
import json
import threading

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.storage.iceberg import upkeep
from nvtrader_pipelines.storage.iceberg.upkeep import compact, tidy
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, EQUITY_CURVES, RUNS
from tests.storage.table_rows import bar_rows, run_keys, run_rows

pytestmark = pytest.mark.slow

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)


def write_folds(tables, run_id="run", n_folds=4, equity=1.0):
    """Write rows of a run as small files, one per fold."""
    for fold in range(n_folds):
        rows = run_rows(EQUITY_CURVES, run_id, 5, fold=fold, equity=equity)
        tables.replace(EQUITY_CURVES, rows, {**run_keys(run_id), "fold": [fold]})


def n_files(tables, table=EQUITY_CURVES):
    return tables.describe(table).n_files


def test_compact_merges_small_files_per_partition_in_one_commit(tables):
    write_folds(tables, "one")
    write_folds(tables, "two")
    before, location = tables.read(EQUITY_CURVES), tables.load(EQUITY_CURVES).metadata_location
    merges = compact(tables, EQUITY_CURVES)
    assert [(len(merge.sources), len(merge.paths)) for merge in merges] == [(4, 1), (4, 1)]
    assert n_files(tables) == 2
    assert tables.load(EQUITY_CURVES).metadata.metadata_log[-1].metadata_file == location
    assert_frame_equal(tables.read(EQUITY_CURVES), before)
    assert tables.describe(EQUITY_CURVES).n_rows == len(before)


def test_compact_is_idempotent(tables):
    write_folds(tables)
    compact(tables, EQUITY_CURVES)
    location = tables.load(EQUITY_CURVES).metadata_location
    assert compact(tables, EQUITY_CURVES) == []
    assert tables.load(EQUITY_CURVES).metadata_location == location
    assert compact(tables, RUNS) == []


def test_compact_leaves_large_files(tables, monkeypatch):
    write_folds(tables)
    monkeypatch.setattr(upkeep, "SMALL_BYTES", 1)
    assert compact(tables, EQUITY_CURVES) == []


def test_rows_in_a_merged_file_can_be_replaced_by_key(tables):
    write_folds(tables)
    compact(tables, EQUITY_CURVES)
    tables.replace(
        EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 2, fold=1, equity=9.0), {**run_keys("run"), "fold": [1]}
    )
    tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 2, fold=7), {**run_keys("run"), "fold": [7]})
    counts = tables.read(EQUITY_CURVES).group_by("fold", "equity").len().sort("fold")
    assert counts.rows() == [(0, 1.0, 5), (1, 9.0, 2), (2, 1.0, 5), (3, 1.0, 5), (7, None, 2)]


def test_compact_drops_merges_of_partitions_replaced_meanwhile(tables, home, monkeypatch):
    write_folds(tables, "one")
    write_folds(tables, "two")
    commit = tables.merge

    def late(table, merges):
        tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "one", 5, equity=2.0), run_keys("one"))
        return commit(table, merges)

    monkeypatch.setattr(tables, "merge", late)
    (merge,) = compact(tables, EQUITY_CURVES)
    assert "run_id=two" in merge.paths[0]
    assert tables.read(EQUITY_CURVES, run_keys("one"))["equity"].to_list() == [2.0] * 5
    assert len(tables.read(EQUITY_CURVES, run_keys("two"))) == 20
    assert len(list(home.iceberg.rglob("*.parquet"))) == 10  # 8 superseded, 1 rewritten, 1 merged


def test_concurrent_writers_and_compaction_lose_no_rows(tables, home):
    def write(name):
        own = Store(home).tables
        for version in range(3):
            write_folds(own, name, n_folds=3, equity=float(version))

    names = ["one", "two"]
    write_folds(tables, "old")
    writers = [threading.Thread(target=write, args=[name]) for name in names]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        compact(tables, EQUITY_CURVES)
    compact(tables, EQUITY_CURVES)
    assert n_files(tables) == 3
    assert len(tables.read(EQUITY_CURVES, run_keys("old"))) == 20
    for name in names:
        rows = tables.read(EQUITY_CURVES, run_keys(name)).group_by("fold").agg("equity").sort("fold")
        assert rows["equity"].to_list() == [[2.0] * 5] * 3


def test_pinned_snapshot_survives_commits_expiry_and_compaction(tables, monkeypatch):
    monkeypatch.setattr("nvtrader_pipelines.storage.iceberg.warehouse.PINNING_GRACE", dt.timedelta(0))
    rows = bar_rows(CLEAN_BARS, [2019, 2020], 1.0)
    pinned = tables.replace(CLEAN_BARS, rows, {})
    run = run_rows(RUNS, "r", 1, snapshot_ids=json.dumps({CLEAN_BARS.name: pinned}))
    tables.replace(RUNS, run, {"run_id": ["r"]})
    digest = tables.read(CLEAN_BARS).hash_rows(seed=0).to_list()
    for i in range(30):
        tables.replace(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], float(i)), {"year": [2020]})
    for file in ("a.csv", "b.csv"):
        named = bar_rows(CLEAN_BARS, [2020], 30.0).with_columns(file=pl.lit(file))
        tables.replace(CLEAN_BARS, named, {"year": [2020], "file": [file]})
    tidy(tables, LATER)
    assert len(tables.load(CLEAN_BARS).snapshots()) == 2
    assert tables.read(CLEAN_BARS, snapshot_id=pinned).hash_rows(seed=0).to_list() == digest
    assert tables.describe(CLEAN_BARS).n_files == 2
    assert tables.read(CLEAN_BARS, {"file": ["a.csv", "b.csv"]})["adj_close"].unique().to_list() == [30.0]


def test_old_snapshots_expire_during_commits(tables):
    first = tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run"), {})
    for _ in range(15):
        tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run"), {})
    assert 20 <= len(tables.load(EQUITY_CURVES).snapshots()) < 31
    assert tables.load(EQUITY_CURVES).snapshot_by_id(first) is None


def test_recent_market_snapshot_does_not_expire_during_commits(tables):
    first = tables.replace(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), {})
    for _ in range(15):
        tables.replace(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), {})
    assert tables.load(CLEAN_BARS).snapshot_by_id(first) is not None
