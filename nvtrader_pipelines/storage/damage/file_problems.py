"""Problems of single files: empty, torn or of another kind; cheap enough for every command."""

import json
from pathlib import Path

SQLITE, DUCKDB, PARQUET = b"SQLite format 3\0", b"DUCK", b"PAR1"
EMPTY, TORN, MISSING = "is empty", "ends too early", "is missing"
HEADER = 100  # bytes of a SQLite header


def sqlite_problem(path: Path) -> str | None:
    """Problem of a SQLite database by its header and size, or None."""
    with path.open("rb") as file:
        header = file.read(HEADER)
    if not header:
        return EMPTY
    if not header.startswith(SQLITE):
        return "is no SQLite database"
    if len(header) < HEADER:
        return TORN
    page_size = int.from_bytes(header[16:18]) or 1
    n_bytes = int.from_bytes(header[28:32]) * (65536 if page_size == 1 else page_size)
    journal = path.with_name(f"{path.name}-wal")
    is_exact = header[24:28] == header[92:96]  # otherwise an old version of SQLite wrote the count of pages
    if is_exact and path.stat().st_size < n_bytes and not (journal.exists() and journal.stat().st_size):
        return TORN
    return None


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
