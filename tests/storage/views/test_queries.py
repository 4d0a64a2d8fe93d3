import errno
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, RETURNS
from nvtrader_pipelines.storage.views import publishing
from nvtrader_pipelines.storage.views.published_file import published_root, read_query
from nvtrader_pipelines.storage.views.publishing import publish
from nvtrader_pipelines.storage.views.queries import query_views, read_columns
from nvtrader_pipelines.storage.views.view_definitions import VIEWS
from tests.storage.table_rows import bar_rows, start

pytestmark = pytest.mark.slow

WRITER = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE mine AS SELECT 1 AS x")
print("open", flush=True)
time.sleep(60)
"""


def test_query_before_the_first_publication_is_refused(store):
    with pytest.raises(StorageError):
        query_views(store, "SELECT 1")


def test_invalid_query_is_refused_with_the_message_of_duckdb(published_store):
    with pytest.raises(StorageError, match="clean_bras"):
        query_views(published_store, "FROM silver.clean_bras")


def test_columns_of_every_table_and_view_have_types_and_meanings(published_store):
    columns = read_columns(published_store, RETURNS.name)
    assert columns.select("column", "meaning").rows() == [(one.name, one.doc) for one in RETURNS.schema.columns]
    assert columns.filter(column="session")["type"].item() == "DATE"
    assert all(len(read_columns(published_store, name)) for name in VIEWS)


def test_columns_of_an_unknown_table_are_refused_with_the_nearest(published_store):
    with pytest.raises(NotFoundError, match=r"did you mean 'gold\.returns'"):
        read_columns(published_store, "gold.return")


def test_missing_file_of_the_query_is_not_blamed_on_the_home(published_store):
    with pytest.raises(StorageError, match="nowhere"):
        query_views(published_store, "FROM read_csv('nowhere.csv')")


def test_missing_file_of_a_table_names_the_backup(store, home):
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    publish(store)
    for path in home.iceberg.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(StorageError, match="backup"):
        query_views(store, "FROM silver.clean_bars")


def test_home_path_may_hold_quotes_and_spaces(tmp_path):
    home = Home(tmp_path / "it's my # home")
    store = Store(home)
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    publish(store)
    assert query_views(store, "SELECT count(*) FROM silver.clean_bars").item() == 3
    assert len(store.tables.read(CLEAN_BARS)) == 3


def test_repeated_column_name_gets_a_number():
    with duckdb.connect() as own:
        assert read_query(own, "SELECT 1 AS a, 2 AS a, 3 AS b").columns == ["a", "a_1", "b"]


@pytest.fixture
def moved(store, home, tmp_path):
    """A home with three bars and published views that was renamed."""
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    publish(store)
    return Store(Home(home.root.rename(tmp_path / "it's my # home, 100 % é")))


def test_query_of_a_moved_home_publishes_its_views_again(moved):
    assert query_views(moved, "SELECT count(*) FROM silver.clean_bars").item() == 3
    with duckdb.connect(str(moved.home.duckdb_file), read_only=True) as client:
        assert published_root(client) == moved.home.root
        assert client.execute("SELECT count(*) FROM silver.clean_bars").fetchone() == (3,)
    assert query_views(moved, "SELECT count(*) FROM silver.clean_bars").item() == 3


def test_query_of_a_moved_home_that_cannot_be_written_is_refused(moved, monkeypatch):
    def fail(_path):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(publishing, "file_lock", fail)
    with pytest.raises(StorageError):
        query_views(moved, "SELECT 1")


def test_query_without_the_published_file_publishes_it(moved):
    moved.home.duckdb_file.unlink()
    assert query_views(moved, "SELECT count(*) FROM silver.clean_bars").item() == 3


def test_query_while_a_client_writes_names_the_read_only_way(store, home):
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    publish(store)
    with start(WRITER, home.duckdb_file) as client:
        assert client.stdout.readline() == "open\n"
        with pytest.raises(StorageError, match="duckdb -readonly"):
            query_views(store, "SELECT 1")
        client.kill()


def test_queries_and_publications_of_eight_threads_do_not_fail(store):
    publish(store)

    def query(number):
        if number % 8 == 0:
            publish(store)
        return query_views(store, f"SELECT {number} AS n")["n"][0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(query, range(24))) == list(range(24))
