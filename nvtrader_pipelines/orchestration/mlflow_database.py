"""MLflow's database: the schema `mlflow` of a home's Postgres, or else a file.

The file is made aside, so that a killed process leaves none, and set aside where it cannot be used.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nvtrader_pipelines.storage.errors import UnavailableError
from nvtrader_pipelines.storage.file_problems import MISSING, mlflow_problem
from nvtrader_pipelines.storage.files import create_aside, file_lock, set_aside
from nvtrader_pipelines.storage.ledger.database import DATABASE_ERRORS
from nvtrader_pipelines.storage.postgres import URL, prepare_schema

if TYPE_CHECKING:
    from mlflow import MlflowClient

SCHEMA = "mlflow"  # of Postgres
Warn = Callable[[str], object]
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # MLflow would report its use over the network
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",  # a connection that is kept would write into a file set aside
}


def store_errors() -> tuple[type[Exception], ...]:
    """Errors that a failing store of MLflow raises: a full disk, a lock, damage, a server that is down."""
    from mlflow import MlflowException  # takes seconds to import

    return (MlflowException, UnavailableError, *DATABASE_ERRORS)


def open_database(path: Path, experiments: Sequence[str], artifacts: str, warn: Warn) -> "MlflowClient":
    """Open MLflow's database; one that cannot be used is set aside with a warning, and a missing one is made."""
    _configure()
    from mlflow import MlflowClient  # takes seconds to import

    with file_lock(path.with_name(f"{path.name}.lock")):
        problem = mlflow_problem(path) if path.exists() else MISSING
        if problem:
            with create_aside(path) as new:
                _create(f"sqlite:///{new}", experiments, artifacts)
                damaged = set_aside(path)
            if damaged:
                warn(f"{path} {problem}: it was renamed to {damaged.name}, and MLflow's history begins anew")
        return MlflowClient(f"sqlite:///{path}")


def open_postgres(url: URL, experiments: Sequence[str], artifacts: str) -> "MlflowClient":
    """Open MLflow's tables in Postgres, made if they are missing.

    Raises:
        UnavailableError: if the database cannot be used, which MLflow itself would try for minutes.
    """
    _configure()
    from mlflow import MlflowClient  # takes seconds to import

    create = partial(_create, experiments=experiments, artifacts=artifacts)
    return MlflowClient(prepare_schema("MLflow database", url, SCHEMA, create))


def _configure() -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs every table it creates
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it raises the errors that it logs


def _create(uri: str, experiments: Sequence[str], artifacts: str) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # takes seconds to import

    store = SqlAlchemyStore(uri, artifacts)
    for name in experiments:
        store.create_experiment(name, artifact_location=artifacts)
    store.engine.dispose()


def rewrite_artifact_uris(database: Path, old: str, new: str) -> None:
    """Rewrite the recorded URIs of artifacts, after the home was moved or copied."""
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            moved = f"UPDATE {table} SET {column} = ? || substr({column}, ?)"
            inside = f"{column} = ? OR substr({column}, 1, ?) = ?"
            connection.execute(f"{moved} WHERE {inside}", (new, len(old) + 1, old, len(old) + 1, f"{old}/"))
