import math

import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.storage.iceberg import data_files
from nvtrader_pipelines.storage.iceberg.data_files import DataFiles
from nvtrader_pipelines.storage.tables import ACTION_LOGS, CLEAN_BARS, EQUITY_CURVES, RUNS
from tests.storage.table_rows import bar_rows, conform, run_keys, run_rows


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(data_files, "ROWS_PER_GROUP", 8)


def parquet_files(home):
    return sorted(home.iceberg.rglob("*.parquet"))


def numbered_rows(n_rows, run_id="run"):
    return run_rows(EQUITY_CURVES, run_id, n_rows).with_columns(equity=pl.int_range(n_rows).cast(pl.Float64))


@pytest.mark.parametrize("sizes", [[30], [1] * 30, [7, 0, 16, 7], [8, 8, 14]])
def test_rows_in_batches_give_the_same_row_groups(tables, home, small_groups, sizes):
    rows = numbered_rows(sum(sizes))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    batches = (rows[end - size : end] for size, end in zip(sizes, ends, strict=True))
    tables.replace(EQUITY_CURVES, batches, run_keys("run"))
    assert_frame_equal(tables.read(EQUITY_CURVES), rows)
    (file,) = parquet_files(home)
    facts = pq.read_metadata(file)
    assert [facts.row_group(i).num_rows for i in range(facts.num_row_groups)] == [8, 8, 8, 6]


def test_batches_give_one_file_per_partition(tables, home):
    years = [2018, 2019, 2020]
    batches = [bar_rows(CLEAN_BARS, years, value) for value in (1.0, 2.0)]
    tables.replace(CLEAN_BARS, iter(batches), {"year": years})
    assert [file.parent.name for file in parquet_files(home)] == ["year=2018", "year=2019", "year=2020"]
    assert_frame_equal(tables.read(CLEAN_BARS), pl.concat(batches).sort("year", maintain_order=True))


@pytest.mark.slow
def test_rows_with_null_partition_have_their_own_file(tables):
    rows = bar_rows(CLEAN_BARS, [2020]).with_columns(year=pl.Series([None, 2020, None], dtype=pl.Int32))
    tables.replace(CLEAN_BARS, rows, {})
    assert tables.describe(CLEAN_BARS).n_files == 2
    assert tables.read(CLEAN_BARS)["year"].null_count() == 2
    without_spec = run_rows(EQUITY_CURVES, "run").with_columns(spec_hash=pl.lit(None, pl.String))
    tables.replace(EQUITY_CURVES, without_spec, {"run_id": ["run"]})
    assert tables.read(EQUITY_CURVES)["spec_hash"].null_count() == 3


def test_large_file_is_followed_by_another(tables, home, small_groups, monkeypatch):
    monkeypatch.setattr(data_files, "MAX_FILE_BYTES", 1)
    tables.replace(EQUITY_CURVES, numbered_rows(20), run_keys("run"))
    assert len(parquet_files(home)) == 3
    assert sorted(tables.read(EQUITY_CURVES)["equity"]) == list(range(20))


@pytest.mark.parametrize("wrong", [{"run_id": "other"}, {"fold": "seven"}])
def test_refused_batch_leaves_old_rows_and_no_new_file(tables, home, small_groups, wrong):
    tables.replace(EQUITY_CURVES, numbered_rows(3), run_keys("run"))
    before, state = parquet_files(home), tables.describe(EQUITY_CURVES)
    bad = numbered_rows(20).with_columns(**{name: pl.lit(value) for name, value in wrong.items()})
    with pytest.raises(ValueError):
        tables.replace(EQUITY_CURVES, [numbered_rows(20), bad], run_keys("run"))
    assert (parquet_files(home), tables.describe(EQUITY_CURVES)) == (before, state)


def test_files_hold_field_ids_full_statistics_and_dictionaries(tables, home):
    rows = conform(ACTION_LOGS, run_rows(ACTION_LOGS, "run")).with_columns(
        symbols=pl.lit(["A", "cash"]), trades=pl.lit([0.5, math.nan])
    )
    tables.replace(ACTION_LOGS, conform(ACTION_LOGS, rows), run_keys("run"))
    (path,) = parquet_files(home)
    schema = pq.read_schema(path)
    ids = {field.name: field.field_id for field in tables.load(ACTION_LOGS).schema().fields}
    assert {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema} == ids
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    with_dictionary = {name for name, column in columns.items() if column.has_dictionary_page}
    assert with_dictionary >= {"spec_hash", "run_id", "symbols.list.element"}
    assert not with_dictionary & {"trades.list.element", "target_weights.list.element"}
    assert columns["spec_hash"].statistics.min == "5" * 64


def test_categorical_values_are_written_as_strings(tables):
    rows = run_rows(RUNS, "run", n_rows=1, source="sample").with_columns(pl.col("source").cast(pl.Categorical))
    tables.replace(RUNS, rows, {"run_id": ["run"]})
    assert tables.read(RUNS)["source"].to_list() == ["sample"]


def test_data_files_buffer_less_than_a_row_group(tables, small_groups):
    with DataFiles(tables.load(EQUITY_CURVES)) as files:
        for _ in range(10):
            files.write(numbered_rows(7))
            assert all(waiting._n_waiting < 8 for waiting in files._open.values())
