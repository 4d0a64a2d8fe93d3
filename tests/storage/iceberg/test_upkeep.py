import datetime as dt
import json
import os

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg import upkeep
from nvtrader_pipelines.storage.iceberg.upkeep import tidy
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, MARKET_PANEL, RUNS
from tests.storage.ledger.run_rows import run_row
from tests.storage.table_rows import bar_rows, conform, run_rows

pytestmark = pytest.mark.slow

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)


def write_versions(tables, n_versions):
    snapshots = []
    for version in range(n_versions):
        tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], float(version)), [2020])
        snapshots.append(tables.snapshot_id(CLEAN_BARS))
    return snapshots


def data_files(home):
    return {path for path in home.iceberg.rglob("*.parquet") if "clean_bars" in str(path)}


def test_upkeep_deletes_superseded_snapshots_and_their_files(tables, home):
    old, *_, last = write_versions(tables, 4)
    rows = tables.read(CLEAN_BARS)
    report = tidy(tables, LATER)
    assert report.n_snapshots >= 3
    assert report.n_bytes > 0
    assert (len(data_files(home)), tables.snapshot_id(CLEAN_BARS)) == (1, last)
    assert_frame_equal(tables.read(CLEAN_BARS), rows)
    with pytest.raises(StorageError):
        tables.read(CLEAN_BARS, snapshot_id=old)
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], 9.0), [2020])
    assert tables.read(CLEAN_BARS)["adj_close"].unique().to_list() == [9.0]


def test_snapshots_named_by_a_panel_or_run_survive_upkeep(tables):
    by_panel, by_run, *_ = write_versions(tables, 4)
    panel = conform(MARKET_PANEL, pl.DataFrame({"source": ["sample"], "clean_bars_snapshot_id": [by_panel]}))
    tables.replace(MARKET_PANEL, panel, {})
    run = run_rows(RUNS, "r", 1, snapshot_ids=json.dumps({"silver.clean_bars": by_run}))
    tables.replace(RUNS, run, {"run_id": ["r"]})
    tidy(tables, LATER)
    values = [tables.read(CLEAN_BARS, snapshot_id=each)["adj_close"][0] for each in (by_panel, by_run)]
    assert values == [0.0, 1.0]


def test_snapshots_of_an_unfinished_run_survive_upkeep(tables, home):
    by_run, *_ = write_versions(tables, 3)
    ledger = Store(home).ledger
    ledger.begin(run_row(ledger, snapshot_ids={CLEAN_BARS.name: by_run}))
    tidy(tables, LATER)
    assert tables.read(CLEAN_BARS, snapshot_id=by_run)["adj_close"][0] == 0.0


def test_upkeep_keeps_recent_snapshots_and_files(tables, home):
    old, _ = write_versions(tables, 2)
    orphan = home.iceberg / "silver" / "clean_bars" / "data" / "orphan.parquet"
    orphan.write_bytes(b"of a commit under way")
    assert tidy(tables, dt.datetime.now(dt.UTC)).n_files == 0
    assert len(tables.read(CLEAN_BARS, snapshot_id=old)) == 3
    assert orphan.exists()


def test_orphaned_file_is_deleted_after_the_grace(tables, home):
    write_versions(tables, 1)
    orphan = home.iceberg / "silver" / "clean_bars" / "data" / "orphan.parquet"
    orphan.write_bytes(b"of a writer that was killed")
    os.utime(orphan, (0, 0))
    assert tidy(tables, dt.datetime.now(dt.UTC)).n_files == 1
    assert not orphan.exists()


def test_upkeep_is_idempotent(tables):
    write_versions(tables, 3)
    tidy(tables, LATER)
    second = tidy(tables, LATER)
    assert (second.n_snapshots, second.n_files) == (0, 0)
    assert len(tables.read(CLEAN_BARS)) == 3


def test_old_file_replaced_just_now_survives_upkeep(tables, home, monkeypatch):
    monkeypatch.setattr(upkeep, "KEPT", dt.timedelta(0))
    write_versions(tables, 1)
    (file,) = data_files(home)
    os.utime(file, (0, 0))
    write_versions(tables, 1)
    assert tidy(tables, dt.datetime.now(dt.UTC)).n_snapshots > 0
    assert file.exists()


def test_upkeep_reports_each_changed_table(tables):
    write_versions(tables, 3)
    tables.replace(RUNS, run_rows(RUNS, "r", 1, snapshot_ids="{}"), {"run_id": ["r"]})
    reports = []
    total = tidy(tables, LATER, on_table=lambda table, part: reports.append((table, part)))
    assert [table for table, _ in reports] == [CLEAN_BARS.name]
    assert reports[0][1] == total
    assert "0 small files merged into 0" in str(total)
