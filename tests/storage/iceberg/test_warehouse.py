import datetime as dt
import math

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, EQUITY_CURVES, FEATURES, RETURNS, RUNS
from tests.storage.table_rows import AT, bar_rows, conform, run_keys, run_rows


def test_unwritten_table_reads_as_empty_with_its_columns(tables):
    assert tables.read(RUNS).is_empty()
    assert tables.read(RUNS).columns == RUNS.schema.names()
    assert tables.snapshot_id(RUNS) is None


@pytest.mark.slow
def test_replacing_a_partition_is_idempotent(tables):
    rows = bar_rows(CLEAN_BARS, [2019, 2020])
    for _ in range(3):
        tables.replace_years(CLEAN_BARS, rows, [2019, 2020])
    assert_frame_equal(tables.read(CLEAN_BARS), rows)


def test_replacing_a_partition_replaces_only_its_rows(tables):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2018, 2019, 2020], 1.0), [2018, 2019, 2020])
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019], 2.0, n_rows=5), [2019])
    counts = tables.read(CLEAN_BARS).group_by("year", "adj_close").len().sort("year")
    assert counts.rows() == [(2018, 1.0, 3), (2019, 2.0, 5), (2020, 1.0, 3)]


@pytest.mark.slow
def test_replacing_many_years_is_one_commit(tables):
    years = list(range(1990, 2023))
    tables.replace_years(RETURNS, bar_rows(RETURNS, years, 1.0), years)
    before = tables.load(RETURNS)
    tables.replace_years(RETURNS, bar_rows(RETURNS, years, 2.0), years)
    after = tables.load(RETURNS)
    assert len(after.metadata.metadata_log) == len(before.metadata.metadata_log) + 1
    assert after.metadata.metadata_log[-1].metadata_file == before.metadata_location
    assert tables.describe(RETURNS).n_files == len(years)


def test_replacing_by_key_keeps_other_rows_of_the_partition(tables):
    first, second = (
        bar_rows(BARS, [2020], "1", column="close").with_columns(file=pl.lit(name)) for name in ("a.csv", "b.csv")
    )
    tables.replace(BARS, pl.concat([first, second]), {"year": [2020]})
    corrected = first.with_columns(close=pl.lit("2"))
    tables.replace(BARS, corrected, {"year": [2020], "file": ["a.csv"]})
    assert_frame_equal(tables.read(BARS).sort("file", "symbol"), pl.concat([corrected, second]))


def test_partition_can_be_emptied(tables):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019, 2020]), [2019, 2020])
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, []), [2019])
    assert tables.read(CLEAN_BARS)["year"].unique().to_list() == [2020]


def test_replacing_nothing_commits_nothing(tables):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019]), [2019])
    before = tables.load(CLEAN_BARS).metadata_location
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, []), [2020])
    assert tables.load(CLEAN_BARS).metadata_location == before


def test_replacing_an_empty_list_of_values_changes_nothing(tables):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019]), [2019])
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, []), [])
    assert len(tables.read(CLEAN_BARS)) == 3


def test_replacing_without_keys_replaces_the_whole_table(tables):
    tables.replace(RUNS, run_rows(RUNS, "a" * 16), {})
    tables.replace(RUNS, run_rows(RUNS, "b" * 16, n_rows=1), {})
    assert tables.read(RUNS)["run_id"].to_list() == ["b" * 16]


@pytest.mark.slow
def test_nan_is_stored_as_null_and_survives_other_replacements(tables):
    holes = run_rows(EQUITY_CURVES, "holes", equity=math.nan)
    tables.replace(EQUITY_CURVES, holes, run_keys("holes"))
    for value in (1.0, math.nan, 2.0):
        tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "other", equity=value), run_keys("other"))
    found = tables.read(EQUITY_CURVES, run_keys("holes"))
    assert len(found) == 3
    assert found["equity"].null_count() == 3
    assert tables.read(EQUITY_CURVES, run_keys("other"))["equity"].to_list() == [2.0] * 3


def test_bars_with_nan_survive_replacement_of_other_files(tables):
    rows = bar_rows(CLEAN_BARS, [2020], math.nan).with_columns(file=pl.Series(["a", "b", "b"]))
    tables.replace(CLEAN_BARS, rows, {"year": [2020]})
    tables.replace(CLEAN_BARS, rows.head(0), {"year": [2020], "file": ["a"]})
    assert tables.read(CLEAN_BARS)["file"].to_list() == ["b", "b"]


@pytest.mark.parametrize("column", ["equity", "session"])
def test_replacing_by_a_float_or_date_column_is_refused(tables, column):
    with pytest.raises(ValueError):
        tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "a"), {column: [1]})


@pytest.mark.parametrize("year", [2021, None])
def test_rows_outside_the_replaced_values_are_refused(tables, year):
    rows = bar_rows(CLEAN_BARS, [2020]).with_columns(year=pl.lit(year, pl.Int32))
    with pytest.raises(ValueError):
        tables.replace(CLEAN_BARS, rows, {"year": [2020]})
    assert tables.snapshot_id(CLEAN_BARS) is None


@pytest.mark.parametrize("change", [lambda rows: rows.drop("close"), lambda rows: rows.with_columns(clsoe=1.0)])
def test_rows_with_missing_or_unknown_columns_are_refused(tables, change):
    with pytest.raises(ValueError):
        tables.replace(CLEAN_BARS, change(bar_rows(CLEAN_BARS, [2020])), {"year": [2020]})


def test_snapshot_is_read_unchanged_after_later_commits(tables):
    old = bar_rows(CLEAN_BARS, [2019, 2020], 1.0)
    snapshot = tables.replace(CLEAN_BARS, old, {"year": [2019, 2020]})
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], 2.0), [2020])
    assert_frame_equal(tables.read(CLEAN_BARS, snapshot_id=snapshot), old)
    assert tables.snapshot_id(CLEAN_BARS) != snapshot


def test_expired_snapshot_is_refused(tables):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    with pytest.raises(StorageError):
        tables.read(CLEAN_BARS, snapshot_id=7)


def test_read_selects_rows_and_columns(tables):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019, 2020]), [2019, 2020])
    found = tables.read(CLEAN_BARS, {"year": [2020], "symbol": ["N1"]}, ["symbol", "session"])
    assert found.rows() == [("N1", dt.date(2020, 1, 3))]


def test_whole_table_is_read_once_per_snapshot(tables, home):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019]), [2019])
    first = tables.read_whole(CLEAN_BARS, ["year"])
    assert tables.read_whole(CLEAN_BARS, ["year"]) is first
    assert tables.read_whole(CLEAN_BARS, ["year", "symbol"]).columns == ["year", "symbol"]
    writer = Store(home).tables
    writer.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], n_rows=5), [2020])
    assert tables.read_whole(CLEAN_BARS, ["year"])["year"].sort().to_list() == [2019] * 3 + [2020] * 5


def test_years_are_read_in_ascending_order(tables):
    for year in (2020, 2018, 2019):
        tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [year]), [year])
    assert tables.read(CLEAN_BARS)["year"].is_sorted()


def test_lists_times_and_strings_keep_their_types(tables):
    row = conform(
        RUNS, pl.DataFrame({"run_id": ["r"], "seeds": [[1, 2]], "warnings": [["ä", ""]], "finished_at": [AT]})
    )
    tables.replace(RUNS, row, {"run_id": ["r"]})
    assert_frame_equal(tables.read(RUNS), row)


@pytest.mark.slow
def test_hundreds_of_key_values_are_replaced_exactly(tables):
    names = [f"run-{i:04d}-{'x' * 20}" for i in range(300)]
    rows = pl.concat([run_rows(RUNS, name, n_rows=1) for name in names])
    tables.replace(RUNS, rows, {})
    tables.replace(RUNS, rows.head(0), {"run_id": names[:299]})
    assert tables.read(RUNS)["run_id"].to_list() == names[299:]


def test_describe_counts_rows_files_and_bytes(tables):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019, 2020]), [2019, 2020])
    state = tables.describe(CLEAN_BARS)
    assert (state.n_rows, state.n_files, state.snapshot_id) == (6, 2, tables.snapshot_id(CLEAN_BARS))
    assert state.n_bytes > 0
    assert (dt.datetime.now(dt.UTC) - state.updated_at).total_seconds() < 60
    assert tables.describe_all().filter(pl.col("name") == "gold.features")["n_rows"].to_list() == [0]


def test_missing_data_file_is_refused_with_its_name(tables, home):
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    (file,) = home.iceberg.rglob("*.parquet")
    file.unlink()
    with pytest.raises(StorageError, match=file.name):
        tables.read(CLEAN_BARS)


@pytest.mark.slow
def test_new_feature_widens_the_table_with_null_in_old_rows(tables, monkeypatch):
    old = bar_rows(FEATURES, [2019], 1.0, column="return_1")
    snapshot = tables.replace(FEATURES, old, {"year": [2019]})
    extended = type(FEATURES)(
        FEATURES.namespace,
        FEATURES.table,
        TableSchema(FEATURES.schema, Column("return_2", pl.Float64, "log price change over 2 sessions")),
        FEATURES.partition_by,
    )
    assert tables.read(extended)["return_2"].null_count() == 3
    tables.replace(extended, bar_rows(extended, [2020], 2.0, column="return_2"), {"year": [2020]})
    found = tables.read(extended)
    assert found.group_by("year", "return_2").len().sort("year").rows() == [(2019, None, 3), (2020, 2.0, 3)]
    assert_frame_equal(tables.read(FEATURES, snapshot_id=snapshot), old)
    assert tables.replace(FEATURES, old, {"year": [2019]})  # a column no longer computed is null


runs = st.sampled_from(["a" * 16, "b" * 16, "c" * 16])
writes = st.tuples(
    st.lists(runs, min_size=1, max_size=2, unique=True), st.integers(0, 3), st.sampled_from([1.0, math.nan])
)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(history=st.lists(writes, min_size=1, max_size=5))
def test_table_matches_a_dictionary_after_any_history(tmp_path_factory, history):
    tables = Store(Home(tmp_path_factory.mktemp("home"))).tables
    expected = {}
    for names, n_rows, value in history:
        rows = pl.concat([run_rows(EQUITY_CURVES, name, n_rows, equity=value, fold=len(expected)) for name in names])
        tables.replace(EQUITY_CURVES, rows, {"run_id": names})
        expected |= {name: [None if math.isnan(value) else value] * n_rows for name in names}
    found = tables.read(EQUITY_CURVES)
    for name, values in expected.items():
        assert found.filter(pl.col("run_id") == name)["equity"].to_list() == values
    assert len(found) == sum(map(len, expected.values()))
