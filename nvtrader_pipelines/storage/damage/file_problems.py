"""Problems of single files (empty, torn or of another kind) and their remedies; cheap enough for every command."""

import contextlib
import json
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path

from nvtrader_pipelines.storage.home import Home

DUCKDB, PARQUET = b"DUCK", b"PAR1"
EMPTY, TORN, MISSING = "is empty", "ends too early", "is missing"
HALF_MADE = "was made or migrated only in part"
REPAIR = "`nvtrader doctor --repair` rebuilds it"  # the remedy, as the end of a sentence
MLFLOW_TABLES = {"alembic_version", "experiments", "runs"}  # of every version of MLflow


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
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables >= MLFLOW_TABLES or any(name.startswith("_alembic_tmp_") for name in tables):
        return HALF_MADE
    return None if database.execute("SELECT 1 FROM alembic_version, experiments LIMIT 1").fetchone() else HALF_MADE


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


def json_problem(path: Path) -> str | None:
    """Problem of a file that must hold a JSON mapping, or None."""
    content = path.read_bytes()
    if not content.strip(b"\0 \n"):
        return EMPTY
    try:
        return None if isinstance(json.loads(content), dict) else "holds no JSON mapping"
    except ValueError:
        return "is no JSON document"


def ending_problem(path: Path, ending: bytes, size: int | None = None) -> str | None:
    """Problem of a file that must end in given bytes and may have a known size, or None."""
    try:
        with path.open("rb") as file:
            n_bytes = file.seek(0, 2)
            file.seek(max(0, n_bytes - len(ending)))
            last = file.read()
    except FileNotFoundError:
        return MISSING
    if not n_bytes:
        return EMPTY
    return None if last == ending and size in (None, n_bytes) else TORN


def rebuild_remedy(home: Home) -> str:
    """Remedy for a damaged file that cannot be rebuilt, as the end of a sentence."""
    folder = shlex.quote(str(home.warehouse))
    return (
        "restore the home from a backup, or build the warehouse again from data/, without replays and archived names: "
        f"`rm -r {folder} && nvtrader materialize`"
    )
