import shutil

import pytest

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.catalog import properties_of
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.tables import CLEAN_BARS, RUNS, TABLES
from tests.storage.frames import keyed, yearly


def test_a_moved_warehouse_says_what_to_do(lake, home, tmp_path):
    lake.replace_years(CLEAN_BARS, yearly(CLEAN_BARS, [2020]), [2020])
    home.root.rename(tmp_path / "elsewhere")
    moved = Warehouse(Home(tmp_path / "elsewhere"))
    for use in (moved.describe_all, lambda: moved.read(CLEAN_BARS), lambda: moved.snapshot_id(CLEAN_BARS)):
        with pytest.raises(StorageError, match="the warehouse was moved or files were deleted: put it back") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_a_copied_warehouse_does_not_touch_the_one_it_was_copied_from(lake, home, tmp_path):
    rows = yearly(CLEAN_BARS, [2020])
    lake.replace_years(CLEAN_BARS, rows, [2020])
    shutil.copytree(home.root, tmp_path / "copy")
    copy = Warehouse(Home(tmp_path / "copy"))
    with pytest.raises(StorageError, match="cannot be moved or copied"):
        copy.replace_years(CLEAN_BARS, rows, [2020])


def test_a_home_behind_a_symbolic_link_is_the_same_home(lake, home, tmp_path):
    lake.replace_years(CLEAN_BARS, yearly(CLEAN_BARS, [2020]), [2020])
    link = tmp_path / "link"
    link.symlink_to(home.root)
    assert len(Warehouse(Home(link)).read(CLEAN_BARS)) == 3


def test_the_meaning_of_every_column_is_kept_in_the_catalog(lake):
    for table in TABLES:
        fields = lake.load(table).schema().fields
        assert [(field.name, field.doc) for field in fields] == [
            (column.name, column.doc) for column in table.schema.columns
        ]


def test_reading_makes_no_table(lake, home):
    assert lake.describe_all()["n_rows"].sum() == 0
    assert lake.read(CLEAN_BARS).is_empty()
    assert not (home.iceberg / "silver").exists()


def test_a_catalog_is_opened_again_with_what_it_held(lake, home):
    lake.replace_years(CLEAN_BARS, yearly(CLEAN_BARS, [2020]), [2020])
    assert len(Warehouse(home).read(CLEAN_BARS)) == 3


def test_a_table_of_an_earlier_version_is_set_as_new_ones_are(lake, home):
    lake.replace(RUNS, keyed(RUNS, "a" * 16), {})
    with lake.load(RUNS).transaction() as transaction:
        transaction.remove_properties("commit.manifest-merge.enabled", "write.metadata.metrics.column.run_id")
        transaction.set_properties({"commit.retry.num-retries": "4"})
    lake.replace(RUNS, keyed(RUNS, "b" * 16), {"run_id": ["b" * 16]})
    assert Warehouse(home).load(RUNS).properties.items() >= properties_of(RUNS).items()
    before = lake.load(RUNS).metadata_location
    assert (len(lake.read(RUNS)), lake.load(RUNS).metadata_location) == (6, before)
