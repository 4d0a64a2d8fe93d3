"""SQLAlchemy engines of SQLite files, shared by the connections of a process, and new files copied from the first one.

Dagster makes an engine for every event that it stores, which then compiles its statements anew: a quarter of a run's
time. Migrations make a new file in up to 3 CPU seconds.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa


def share_engines() -> None:
    """Return one engine per address from now on where an engine holds no connections; call it before Dagster's import.

    Such an engine is valid in forks and after its file was removed.
    """
    create, engines = sa.create_engine, {}

    def create_engine(url: Any, **options: Any) -> sa.Engine:
        if options.get("poolclass") is not sa.NullPool:
            return create(url, **options)
        key = str(url), repr(sorted(options.items(), key=lambda option: option[0]))
        if key not in engines:
            engines[key] = create(url, **options)
        return engines[key]

    sa.create_engine = create_engine


def copy_new_databases(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Copy new ledgers and MLflow databases from one that is made in a folder."""
    from nvtrader_pipelines.orchestration import mlflow_database
    from nvtrader_pipelines.storage.ledger.database import Database

    make_ledger, make_mlflow = Database.create_file, mlflow_database._create

    def create_ledger(database: Database) -> None:
        if (file := Path(str(database.url.database))).exists():
            make_ledger(database)
            return
        if not (first := folder / "ledger.db").exists():
            make_ledger(Database.connect(database.url.set(database=str(first))))
        shutil.copyfile(first, file)

    def create_mlflow(uri: str, experiments: Any, artifacts: str) -> None:
        if not uri.startswith("sqlite:///"):
            make_mlflow(uri, experiments, artifacts)
            return
        if not (first := folder / f"mlflow-{'-'.join(experiments)}.db").exists():
            make_mlflow(f"sqlite:///{first}", experiments, "artifacts")
        shutil.copyfile(first, file := Path(uri.removeprefix("sqlite:///")))
        mlflow_database.rewrite_artifact_uris(file, "artifacts", artifacts)

    patch.setattr(Database, "create_file", create_ledger)
    patch.setattr(mlflow_database, "_create", create_mlflow)
