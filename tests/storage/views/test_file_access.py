import shutil

import pytest

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.views.queries import query_views

pytestmark = pytest.mark.slow


@pytest.fixture
def store(published_store):
    """The published store, in whose folder of exports and beside whose home these tests write."""
    shutil.rmtree(published_store.home.exports, ignore_errors=True)
    return published_store


READS = [
    "FROM read_csv('{outside}')",
    "COPY (SELECT 1 AS a) TO '{outside}'",
    "ATTACH '{outside}.db'",
    "FROM read_text('{home}/../outside.csv')",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FROM read_parquet('https://example.org/prices.parquet')",
    "SET enable_external_access = true",
    "SET autoinstall_known_extensions = true",
]


def test_query_outside_the_home_is_refused(store):
    folder = store.home.root.parent
    outside = folder / "outside.csv"
    outside.write_text("secret\n42\n")
    for query in READS:
        with pytest.raises(StorageError):
            query_views(store, query.format(outside=outside, home=store.home.root))
    assert outside.read_text() == "secret\n42\n"
    assert sorted(path.name for path in folder.iterdir()) == ["home", "outside.csv"]


WRITES = [
    "COPY (SELECT 1 AS a) TO '{home}/warehouse/ledger.db'",
    "COPY (SELECT 1 AS a) TO '{home}/exports/../warehouse/ledger.db'",
    "COPY (SELECT 1 AS a) TO '{home}/exports/link.db'",
    "COPY (SELECT 1 AS a) TO '{home}/exports/linked/ledger.db'",
    "COPY (SELECT 1 AS a) TO 'warehouse/ledger.db'",
    "COPY (SELECT 1 AS a) TO ('warehouse/' || 'ledger.db')",
    "COPY (SELECT 1 AS a) TO /* 'exports/a.csv' */ E'warehouse\\x2fledger.db'",
    "COPY (SELECT 1 AS a) TO 'new.csv'",
    "SELECT 1; COPY (SELECT 1 AS a) TO 'warehouse/ledger.db'",
    "WITH c AS (COPY (SELECT 1) TO 'warehouse/ledger.db') FROM c",
    "COPY (WITH c AS (COPY (SELECT 1) TO 'warehouse/ledger.db') FROM c) TO 'exports/a.csv'",
    "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO 'warehouse/ledger.db'",
    "EXPLAIN ANALYZE WITH c AS (COPY (SELECT 1) TO 'warehouse/ledger.db') FROM c",
    "PREPARE p AS COPY (SELECT 1) TO 'warehouse/ledger.db'; EXECUTE p",
    "COPY (SELECT 1 a, 2 b) TO 'exports/p' (FORMAT csv, PARTITION_BY a, FILENAME_PATTERN '../../../warehouse/a')",
    "COPY (SELECT 1 a, 2 b) TO '{home}/..' (FORMAT csv, PARTITION_BY a)",
    "EXPORT DATABASE 'exports/all'",
    "IMPORT DATABASE 'exports'",
    "ATTACH '{home}/warehouse/new.db' AS n (READ_WRITE)",
    "CREATE TABLE main.mine AS SELECT 1",
    "CREATE PERSISTENT SECRET s (TYPE http)",
    "CALL enable_logging(storage = 'file', storage_path = '{home}/warehouse/logs')",
    "COPY silver.clean_bars FROM 'exports/a.csv'",
]


def test_query_that_writes_into_the_home_is_refused(store, monkeypatch):
    home = store.home
    home.exports.mkdir()
    (home.exports / "linked").symlink_to(home.warehouse)
    (home.exports / "link.db").symlink_to(home.ledger)
    before = {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}
    for folder, query in [
        *((home.root, query) for query in WRITES),
        (home.warehouse, "COPY (SELECT 1) TO 'ledger.db'"),
    ]:
        monkeypatch.chdir(folder)
        with pytest.raises(StorageError):
            query_views(store, query.format(home=home.root))
    assert {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()} == before


COPIES = [
    ("COPY (SELECT 1 AS a, 'é' AS b) TO '{home}/exports/it''s é.csv'", "{home}/exports/it's é.csv"),
    ("COPY (SELECT 1 AS a) TO 'own.parquet' (FORMAT parquet, COMPRESSION zstd);", "own.parquet"),
    ("-- rows\ncopy silver.clean_bars to $$own.csv$$ -- end", "own.csv"),
    ("COPY (PIVOT (VALUES (1, 2)) v(a, b) ON a USING sum(b)) TO 'own.json'", "own.json"),
    ("COPY (SELECT 1 a, 2 b) TO 'folder' (FORMAT csv, PARTITION_BY a)", "folder/a=1/data_0.csv"),
    ("SELECT 1; COPY (SELECT 1 AS \"copy\") TO 'own.csv'", "own.csv"),
]


def test_copy_writes_below_exports_and_the_working_folder(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for query, written in COPIES:
        assert query_views(store, query.format(home=store.home.root)).columns == ["Count"]
        assert (tmp_path / written.format(home=store.home.root)).stat().st_size > 0


def test_query_that_reads_only_works(store):
    for query in ("EXPLAIN SELECT 1", "SHOW TABLES", "CREATE TEMP TABLE t AS SELECT 1; FROM t"):
        assert not query_views(store, query).is_empty()


def test_query_outside_the_home_works_if_allowed(store, tmp_path):
    outside = tmp_path / "outside.csv"
    outside.write_text("secret\n42\n")
    assert query_views(store, f"FROM read_csv('{outside}')", allow_files=True).rows() == [(42,)]


def test_query_reads_files_of_the_home(store):
    (store.home.landing / "own.csv").write_text("a\n1\n")
    assert query_views(store, f"FROM read_csv('{store.home.landing}/own.csv')").rows() == [(1,)]


@pytest.mark.parametrize(
    "content",
    [pytest.param(b"", marks=pytest.mark.nightly), b"torn", pytest.param(b"\0" * 9000, marks=pytest.mark.nightly)],
)
def test_query_over_damaged_views_publishes_them_again(content, store):
    store.home.duckdb_file.write_bytes(content)
    assert query_views(store, "SELECT count(*) FROM silver.clean_bars").item() == 0
