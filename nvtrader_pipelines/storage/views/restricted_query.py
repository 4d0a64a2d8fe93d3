"""Statements that read files of the home only, and write only by COPY into the working folder or `exports/`."""

import glob
from collections.abc import Sequence
from pathlib import Path

import duckdb
import polars as pl
from duckdb import StatementType, token_type

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.settings import tables_folder
from nvtrader_pipelines.storage.views.published_file import NO_DOWNLOADS, read_query

READING = {
    StatementType.SELECT,
    StatementType.EXPLAIN,
    StatementType.MULTI,  # PIVOT
    StatementType.SET,
    StatementType.CREATE,  # temporary, since the file is opened read-only
}
Token = tuple[int, token_type | None]  # position in bytes, kind
COPY_FORM = "COPY (query) TO 'file' (options)"


def run_restricted(
    connection: duckdb.DuckDBPyConnection, home: Home, query: str, max_rows: int | None = None
) -> pl.DataFrame:
    """Run statements and return the rows of the last one; the connection stays restricted.

    Args:
        connection: connection to the views.
        home: home whose files may be read.
        query: statements.
        max_rows: number of rows at most, where no statement may be a COPY; None: all rows.

    Raises:
        StorageError: if a statement writes, and is not a COPY below an allowed folder.
    """
    roots = {home.root.absolute(), home.root.resolve()}  # a link and its target
    _restrict(connection, {*map(str, roots), tables_folder(home)})
    rows = pl.DataFrame()
    for statement in connection.extract_statements(query):
        text = statement.query.encode()
        is_copy = any(_is_word(text, token, b"copy") for token in _tokens(text)[:1])  # with PIVOT it is of type MULTI
        if is_copy and max_rows is None:
            rows = _copy(connection, home, statement.query)
        else:
            _require_reading(statement)
            rows = read_query(connection, statement.query, max_rows)
    return rows


def _restrict(connection: duckdb.DuckDBPyConnection, folders: set[str], files: Sequence[Path] = ()) -> None:
    """Restrict a connection for good to these files and folders; nothing is downloaded."""
    names = [f"{name}/" for folder in folders for name in (folder, glob.escape(folder))]  # as in patterns
    connection.execute("SET allowed_directories = $folders", {"folders": names})
    connection.execute("SET allowed_paths = $files", {"files": [str(file) for file in files]})
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _require_reading(statement: duckdb.Statement) -> None:
    """Raise if a statement may write: by its type, or by a COPY in EXPLAIN or WITH."""
    if statement.type not in READING:
        raise StorageError(
            f"a query must read only, or be {COPY_FORM}, but it is {statement.type.name}; select the rows, "
            "or run it with `nvtrader sql --allow-files`"
        )
    text = statement.query.encode()
    if any(_is_word(text, token, b"copy") for token in _tokens(text)):
        raise StorageError(
            f"COPY must be a statement of its own, {COPY_FORM}, but it is part of another; "
            'move it out, or write a column of that name as "copy"'
        )


def _copy(connection: duckdb.DuckDBPyConnection, home: Home, statement: str) -> pl.DataFrame:
    """Read the rows of a COPY, and write them over a connection that can access its target only."""
    source, literal, options = _split_copy(statement)
    for part in connection.extract_statements(source):
        _require_reading(part)
    ((name,),) = connection.execute(f"SELECT {literal}").fetchall()
    target = _allowed_target(home, Path(name))
    rows = read_query(connection, source)
    with duckdb.connect(config=NO_DOWNLOADS) as writer:
        writer.register("rows", rows)
        # DuckDB writes beside an existing file, and below a folder with PARTITION_BY
        _restrict(writer, {str(target)}, [target, target.with_name(f"tmp_{target.name}")])
        escaped = str(target).replace("'", "''")
        return read_query(writer, f"COPY rows TO '{escaped}' {options}")


def _split_copy(statement: str) -> tuple[str, str, str]:
    """Split a COPY into its query, the literal of its target, and its options."""
    text, depth = statement.encode(), 0
    tokens = [*_tokens(text), (len(text), None), (len(text), None)]
    for token, (target, of_target), (end, _) in zip(tokens, tokens[1:], tokens[2:], strict=False):
        start, kind = token
        if kind == token_type.operator:
            depth += {b"(": 1, b")": -1}.get(text[start : start + 1], 0)
        if not depth and _is_word(text, token, b"to"):
            source = text[tokens[1][0] : start].decode()
            if of_target == token_type.string_const and (source.startswith("(") or "(" not in source):
                return (
                    source if source.startswith("(") else f"FROM {source}",
                    text[target:end].decode(),
                    text[end:].decode(),
                )
    raise StorageError(f"COPY must have the form {COPY_FORM}, but it is {' '.join(statement.split())}; write it so")


def _is_word(text: bytes, token: Token, word: bytes) -> bool:
    """Whether a token is this keyword."""
    at, kind = token
    return kind == token_type.keyword and text[at : at + len(word)].lower() == word


def _tokens(text: bytes) -> list[Token]:
    """Tokens of a statement without its comments."""
    return [(at, kind) for at, kind in duckdb.tokenize(text.decode()) if kind != token_type.comment]


def _allowed_target(home: Home, path: Path) -> Path:
    """Resolve the target of a COPY, which is below the working folder outside the home, or below `exports/`."""
    target, root, working = path.expanduser().resolve(), home.root.resolve(), Path.cwd().resolve()
    exports = root / home.exports.name
    outside = not target.is_relative_to(root) and not root.is_relative_to(target)
    if target.is_relative_to(exports) and target != exports:
        exports.mkdir(exist_ok=True)
    elif not (outside and target.is_relative_to(working) and target != working):
        elsewhere = ", or run it with `nvtrader sql --allow-files`" if outside else ""
        raise StorageError(
            f"COPY must write below {exports}, or below the working folder outside the home, but its target is "
            f"{target}; name a file there{elsewhere}"
        )
    return target
