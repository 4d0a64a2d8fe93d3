import shutil

import pytest

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.catalog import table_properties
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, RUNS, TABLES
from tests.storage.table_rows import bar_rows, run_rows


def test_moved_warehouse_is_refused(tables, home, tmp_path):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    home.root.rename(tmp_path / "elsewhere")
    moved = Store(Home(tmp_path / "elsewhere")).tables
    for use in (moved.describe_all, lambda: moved.read(CLEAN_BARS), lambda: moved.snapshot_id(CLEAN_BARS)):
        with pytest.raises(StorageError, match="the warehouse was moved or files were deleted: put it back") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_copied_warehouse_refuses_to_write(tables, home, tmp_path):
    rows = bar_rows(CLEAN_BARS, [2020])
    tables.replace_years(CLEAN_BARS, rows, [2020])
    shutil.copytree(home.root, tmp_path / "copy")
    copy = Store(Home(tmp_path / "copy")).tables
    with pytest.raises(StorageError, match="cannot be moved or copied"):
        copy.replace_years(CLEAN_BARS, rows, [2020])


def test_home_behind_a_symlink_is_the_same_home(tables, home, tmp_path):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    link = tmp_path / "link"
    link.symlink_to(home.root)
    assert len(Store(Home(link)).tables.read(CLEAN_BARS)) == 3


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
