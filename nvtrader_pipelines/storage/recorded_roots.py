"""Roots that the stores of a home record; after a move or copy they differ from its own."""

from pathlib import Path
from urllib.parse import unquote

from nvtrader_pipelines.storage.damage.file_problems import mlflow_problem
from nvtrader_pipelines.storage.files import open_sqlite
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.locations import TABLES_PART
from nvtrader_pipelines.storage.views.published_file import open_published, published_root


def recorded_roots(home: Home) -> dict[str, set[str]]:
    """Roots by the part of the home that records them: tables, views and MLflow's artifacts.

    Raises:
        StorageError: if a database or the views cannot be read.
    """
    tables = _column(home.catalog, "SELECT metadata_location FROM iceberg_tables")
    path = home.mlflow_database
    is_usable = path.exists() and mlflow_problem(path) is None
    artifacts = _column(path, "SELECT artifact_uri FROM runs") if is_usable else []
    folder = f"/{home.mlflow.relative_to(home.root).as_posix()}/"
    return {
        "tables": {location.rpartition(TABLES_PART)[0].removeprefix("file://") for location in tables},
        "views": _views_root(home),
        "MLflow artifacts": {unquote(uri.rpartition(folder)[0].removeprefix("file://")) for uri in artifacts},
    }


def _views_root(home: Home) -> set[str]:
    if not home.duckdb_file.exists():
        return set()
    with open_published(home) as connection:
        root = published_root(connection)
    return {str(root)} if root else set()


def _column(path: Path, query: str) -> list[str]:
    if not path.exists():
        return []
    with open_sqlite(path) as database:
        return [value for (value,) in database.execute(query)]
