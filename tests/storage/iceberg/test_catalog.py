import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.storage.errors import DamagedFileError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.catalog import table_properties
from nvtrader_pipelines.storage.iceberg.upkeep import tidy
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, RETURNS, RUNS, TABLES
from tests.storage.table_rows import bar_rows, run_rows


def file_states(home):
    """Size and modification time of every file."""
    files = [path for path in home.root.rglob("*") if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("name", ["elsewhere", "with space, # and 100 % [é]", "warehouse/iceberg/inner"])
def test_moved_home_reads_and_writes_its_tables(tables, home, tmp_path, name):
    rows = bar_rows(CLEAN_BARS, [2020])
    snapshot = tables.replace_years(CLEAN_BARS, rows, [2020]) and tables.snapshot_id(CLEAN_BARS)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    moved = Store(Home(home.root.rename(tmp_path / name))).tables
    assert_frame_equal(moved.read(CLEAN_BARS), rows, check_row_order=False)
    for year in (2021, 2022):
        moved.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [year]), [year])
    assert len(moved.read(CLEAN_BARS, snapshot_id=snapshot)) == 3
    assert (moved.describe(CLEAN_BARS).n_rows, len(moved.read(CLEAN_BARS))) == (9, 9)
    assert not home.root.exists()


@pytest.mark.slow
def test_copied_home_leaves_the_files_of_the_original_alone(tables, home, tmp_path):
    for value in (1.0, 2.0, 3.0):
        tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], value), [2020])
    shutil.copytree(home.root, tmp_path / "copy")
    before, copy = file_states(home), Store(Home(tmp_path / "copy")).tables
    for year in (2021, 2021, 2022):
        copy.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [year], 4.0), [year])
    tidy(copy, datetime.now(UTC) + timedelta(days=30))
    assert file_states(home) == before
    assert len(copy.read(CLEAN_BARS)) == 9
    shutil.rmtree(home.root)
    assert sorted(copy.read(CLEAN_BARS)["adj_close"].unique()) == [3.0, 4.0]


def test_home_behind_a_symlink_is_the_same_home(tables, home, tmp_path):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    link = tmp_path / "link"
    link.symlink_to(home.root)
    assert len(Store(Home(link)).tables.read(CLEAN_BARS)) == 3


@pytest.mark.slow
def test_catalog_holds_the_meaning_of_every_column(tables):
    for table in TABLES:
        fields = tables.load(table).schema().fields
        assert [(field.name, field.doc) for field in fields] == [
            (column.name, column.doc) for column in table.schema.columns
        ]


def test_reading_creates_no_table(tables, home):
    assert tables.describe_all()["n_rows"].sum() == 0
    assert tables.read(CLEAN_BARS).is_empty()
    assert not (home.iceberg / "silver").exists()


def test_table_of_an_earlier_version_gets_current_properties(tables, home):
    tables.replace(RUNS, run_rows(RUNS, "a" * 16), {})
    with tables.load(RUNS).transaction() as transaction:
        transaction.remove_properties("commit.manifest-merge.enabled", "write.metadata.metrics.column.run_id")
        transaction.set_properties({"commit.retry.num-retries": "4"})
    tables.replace(RUNS, run_rows(RUNS, "b" * 16), {"run_id": ["b" * 16]})
    assert Store(home).tables.load(RUNS).properties.items() >= table_properties(RUNS).items()
    before = tables.load(RUNS).metadata_location
    assert (len(tables.read(RUNS)), tables.load(RUNS).metadata_location) == (6, before)


def test_file_that_is_no_catalog_is_refused_with_its_path(tables, home):
    home.catalog.parent.mkdir(parents=True, exist_ok=True)
    home.catalog.write_text("no database" * 100)
    with pytest.raises(DamagedFileError, match=r"catalog\.db"):
        tables.read(RUNS)


@pytest.mark.parametrize("content", [None, "tables of another kind"])
def test_catalog_that_lost_its_tables_is_refused_and_not_made_anew(content, tables, home):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    home.catalog.unlink()
    if content:
        with closing(sqlite3.connect(home.catalog)) as database:
            database.execute(f"CREATE TABLE '{content}' (n)")
    before = home.catalog.read_bytes() if content else None
    with pytest.raises(DamagedFileError) as refused:
        Store(home).tables.read(CLEAN_BARS)
    assert refused.value.path == home.catalog
    assert (home.catalog.read_bytes() if home.catalog.exists() else None) == before


@pytest.mark.parametrize("name", ["a%20b", "a+b", "a?b", "a#b", "50%"])
def test_home_with_special_characters_has_a_catalog_of_its_own(name, tmp_path):
    plain, special = Store(Home(tmp_path / "a b")), Store(Home(tmp_path / name))
    plain.tables.load(BARS)
    assert special.tables.find(BARS) is None
    special.tables.load(RETURNS)
    special.ledger.archived_names()
    assert plain.tables.find(RETURNS) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a b", name])
    assert special.home.catalog.exists()
    assert special.home.ledger.exists()


@pytest.mark.slow
def test_catalog_on_a_full_disk_leaves_no_file(home):
    home.iceberg.mkdir(parents=True)
    script = (
        "import resource, sys; from pathlib import Path;"
        "from nvtrader_pipelines.storage.home import Home; from nvtrader_pipelines.storage.store import Store;"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000));"
        "Store(Home(Path(sys.argv[1]))).tables.describe_all()"
    )
    failed = subprocess.run([sys.executable, "-c", script, home.root], capture_output=True, check=False)
    assert failed.returncode != 0
    assert not home.catalog.exists()
    assert Store(home).tables.describe_all()["n_rows"].sum() == 0
