"""Problems of single files (empty, torn or of another kind) and their remedies."""

import contextlib
import json
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nvtrader_pipelines.storage.errors import DamagedFileError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.object_store import has_object, is_object
from nvtrader_pipelines.storage.settings import has_ledger_elsewhere, read_settings, tables_folder

PARQUET = b"PAR1"
METADATA = ".metadata.json"  # ending of the names of tables' metadata files
EMPTY, TORN, MISSING = "is empty", "ends too early", "is missing"
HALF_MADE = "was made or migrated only in part"
CATALOG_TABLES = {"iceberg_tables"}
MLFLOW_TABLES = {"alembic_version", "experiments", "runs"}  # of every version of MLflow
STATES = ("market.json", "pipeline.json")  # of the market and of the graph, below the warehouse
DAGSTER_DATABASES = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")


def find_damage(home: Home) -> Iterator[DamagedFileError]:
    """Find damaged databases, states and settings, apart from tables and MLflow's mirror."""
    if not has_ledger_elsewhere(home) and home.ledger.exists() and (problem := sqlite_problem(home.ledger)):
        yield DamagedFileError(home.ledger, problem, rebuild_remedy(home))
    if not read_settings(home).database_url and (problem := catalog_problem(home)):
        yield DamagedFileError(home.catalog, problem, rebuild_remedy(home))
    for name in STATES:
        try:
            read_state(home.warehouse / name)
        except DamagedFileError as error:
            yield error
    yield from find_damaged_dagster(home)


def find_damaged_dagster(home: Home) -> Iterator[DamagedFileError]:
    """Find damaged settings and databases of Dagster, which would take an empty one for new."""
    settings = home.dagster / "dagster.yaml"
    if settings.exists() and not settings.read_bytes().strip(b"\0 \n"):
        yield DamagedFileError(settings, EMPTY, delete_remedy(settings))
    if read_settings(home).database_url:  # files from before it was set
        return
    for path in (home.dagster / name for name in DAGSTER_DATABASES):
        if path.exists() and (problem := sqlite_problem(path)):
            yield DamagedFileError(path, problem, delete_remedy(path))


def has_catalog(home: Home) -> bool:
    """Whether a table was ever written; opening the catalog would create it."""
    return has_table_files(home) if read_settings(home).database_url else home.catalog.exists()


def has_table_files(home: Home) -> bool:
    """Whether the home, or its object store, has files of tables."""
    folder = tables_folder(home)
    is_here = any(home.iceberg.glob(f"*/*/metadata/*{METADATA}"))
    return is_here or (is_object(folder) and has_object(folder, METADATA))


def catalog_problem(home: Home) -> str | None:
    """Problem of the catalog, or None; one that is missing beside files of tables is no new one."""
    if not home.catalog.exists():
        return MISSING if has_table_files(home) else None
    return _sqlite_problem(home.catalog, lambda database: None if _tables(database) >= CATALOG_TABLES else HALF_MADE)


def read_state(path: Path) -> dict[str, Any] | None:
    """Read a state file: JSON on the inputs the warehouse was built from; None without one.

    Raises:
        DamagedFileError: if it is empty or torn.
    """
    if not path.exists():
        return None
    content = path.read_bytes()
    with contextlib.suppress(ValueError):
        if isinstance(state := json.loads(content), dict):
            return state
    problem = "holds no JSON mapping" if content.strip(b"\0 \n") else EMPTY
    raise DamagedFileError(path, problem, delete_remedy(path))


def sqlite_problem(path: Path) -> str | None:
    """Problem of a SQLite database, or None."""
    return _sqlite_problem(path, lambda _: None)


def mlflow_problem(path: Path) -> str | None:
    """Problem of MLflow's database that MLflow cannot mend, or None; an older schema is none, since MLflow migrates it.

    MLflow adds the first experiment last, so a database without one was never complete.
    """
    return _sqlite_problem(path, _mlflow_schema_problem)


def _mlflow_schema_problem(database: sqlite3.Connection) -> str | None:
    (integrity,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if integrity != "ok":
        return f"is damaged ({integrity})"
    tables = _tables(database)
    if not tables >= MLFLOW_TABLES or any(name.startswith("_alembic_tmp_") for name in tables):
        return HALF_MADE
    return None if database.execute("SELECT 1 FROM alembic_version, experiments LIMIT 1").fetchone() else HALF_MADE


def _tables(database: sqlite3.Connection) -> set[str]:
    """Names of the tables of a database."""
    return {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def _sqlite_problem(path: Path, problem_of: Callable[[sqlite3.Connection], str | None]) -> str | None:
    """Problem of a SQLite database: that of its file, or the one found in its content.

    SQLite finds it: closing a file that this process opened itself would free the locks of its connections.
    """
    if not path.stat().st_size:
        return EMPTY
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            return problem_of(database)
    except sqlite3.OperationalError:  # locked or not writable, which is no damage
        return None
    except sqlite3.DatabaseError as error:
        return f"cannot be read as a SQLite database ({error})"


def ending_problem(path: Path, ending: bytes, size: int) -> str | None:
    """Problem of a file that must end in given bytes and have a known size, or None."""
    try:
        with path.open("rb") as file:
            n_bytes = file.seek(0, 2)
            file.seek(max(0, n_bytes - len(ending)))
            last = file.read()
    except FileNotFoundError:
        return MISSING
    if not n_bytes:
        return EMPTY
    return None if last == ending and size == n_bytes else TORN


def rebuild_remedy(home: Home) -> str:
    """Remedy for a file that only a backup or a new warehouse restores; ends a sentence."""
    settings = read_settings(home)
    if settings.warehouse_uri:
        return (
            "correct warehouse_uri, run `nvtrader migrate` if it is still in the home, set the database_url of all "
            "homes that share the store, or restore objects and databases from backups of the same time"
        )
    if settings.database_url:
        return "restore the home and its database from backups of the same time, or begin with a new home and database"
    folder = shlex.quote(str(home.warehouse))
    return (
        "restore the home from a backup, or build the warehouse again from data/, without replays and archived names: "
        f"`rm -r {folder} && nvtrader materialize`"
    )


def delete_remedy(path: Path) -> str:
    """Remedy for a state, setting or history that is made anew; ends a sentence."""
    return (
        "restore the home from a backup, or delete the file with its journals, and it is made anew: "
        f"`rm {shlex.quote(str(path))}* && nvtrader materialize`"
    )
