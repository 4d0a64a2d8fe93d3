import pytest

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.views.queries import query_views

pytestmark = pytest.mark.usefixtures("published")


@pytest.fixture
def published(tables, store):
    from nvtrader_pipelines.storage.tables import CLEAN_BARS
    from nvtrader_pipelines.storage.views.publishing import publish

    tables.load(CLEAN_BARS)
    publish(store)


@pytest.mark.parametrize(
    "query",
    [
        "FROM read_csv('{outside}')",
        "COPY (SELECT 1 AS a) TO '{outside}'",
        "ATTACH '{outside}.db'",
        "FROM read_text('{home}/../outside.csv')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "FROM read_parquet('https://example.org/prices.parquet')",
        "SET enable_external_access = true",
        "SET autoinstall_known_extensions = true",
    ],
)
def test_query_outside_the_home_is_refused(query, store, tmp_path):
    outside = tmp_path / "outside.csv"
    outside.write_text("secret\n42\n")
    with pytest.raises(StorageError):
        query_views(store, query.format(outside=outside, home=store.home.root))
    assert outside.read_text() == "secret\n42\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "outside.csv"]


def test_query_outside_the_home_works_if_allowed(store, tmp_path):
    outside = tmp_path / "outside.csv"
    outside.write_text("secret\n42\n")
    assert query_views(store, f"FROM read_csv('{outside}')", allow_files=True).rows() == [(42,)]


def test_query_reads_files_of_the_home(store):
    (store.home.landing / "own.csv").write_text("a\n1\n")
    assert query_views(store, f"FROM read_csv('{store.home.landing}/own.csv')").rows() == [(1,)]


@pytest.mark.parametrize("content", [b"", b"torn", b"\0" * 9000])
def test_query_over_damaged_views_publishes_them_again(content, store):
    store.home.duckdb_file.write_bytes(content)
    assert query_views(store, "SELECT count(*) FROM silver.clean_bars").item() == 0
