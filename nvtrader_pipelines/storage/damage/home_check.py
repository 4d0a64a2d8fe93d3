"""Check of the databases, states and metadata files that every command depends on, and of MLflow's mirror."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from nvtrader_pipelines.storage.damage.file_problems import (
    EMPTY,
    REPAIR,
    ending_problem,
    json_problem,
    mlflow_problem,
    rebuild_remedy,
    sqlite_problem,
)
from nvtrader_pipelines.storage.errors import DamagedFileError
from nvtrader_pipelines.storage.files import open_sqlite
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.locations import present_path

STATES = ("market.json", "pipeline.json")  # of the market and of the graph, below the warehouse
DAGSTER_DATABASES = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")


def require_intact(home: Home) -> None:
    """Raise if a file that every command depends on is damaged.

    Raises:
        DamagedFileError: with the first such file and its remedy.
    """
    for error in _find_needed_damage(home):
        raise error


def find_damage(home: Home) -> Iterator[DamagedFileError]:
    """Find damaged files: those that every command depends on, and MLflow's database."""
    yield from _find_needed_damage(home)
    path = home.mlflow_database
    if path.exists() and (problem := mlflow_problem(path)):
        yield DamagedFileError(path, problem, REPAIR)


def _find_needed_damage(home: Home) -> Iterator[DamagedFileError]:
    """Find damaged files that every command depends on; takes a few milliseconds."""
    for path, problem_of, remedy in _watched_files(home):
        if path.exists() and (problem := problem_of(path)):
            yield DamagedFileError(path, problem, remedy)
    if not home.catalog.exists() and any(home.iceberg.glob("*/*/metadata/*.metadata.json")):
        yield DamagedFileError(home.catalog, "is missing", REPAIR)
    elif home.catalog.exists() and sqlite_problem(home.catalog) is None:
        yield from _find_damaged_metadata(home)


def _watched_files(home: Home) -> Iterator[tuple[Path, Callable[[Path], str | None], str]]:
    """Files with the function that finds their problem and the remedy."""
    if not os.environ.get("NVTRADER_LEDGER_URL"):
        yield home.ledger, sqlite_problem, rebuild_remedy(home)
    yield home.catalog, sqlite_problem, REPAIR
    yield from ((home.warehouse / name, json_problem, REPAIR) for name in STATES)
    yield home.dagster / "dagster.yaml", _empty_problem, REPAIR
    yield from ((home.dagster / name, sqlite_problem, REPAIR) for name in DAGSTER_DATABASES)


def _empty_problem(path: Path) -> str | None:
    return None if path.read_bytes().strip(b"\0 \n") else EMPTY


def _find_damaged_metadata(home: Home) -> Iterator[DamagedFileError]:
    """Find damaged metadata files of the tables' current states."""
    try:
        with open_sqlite(home.catalog) as catalog:
            found = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            yield DamagedFileError(home.catalog, "lacks its tables", REPAIR)
        return  # locked: the next reader waits longer
    except DamagedFileError as error:
        yield error
        return
    for (location,) in found:
        path = Path(present_path(location, str(home.iceberg)))
        if problem := ending_problem(path, b"}"):
            yield DamagedFileError(path, problem, rebuild_remedy(home))
