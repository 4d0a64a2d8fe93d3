"""Move files of a home between its folder and the object store of its settings: those of tables, and shared ones."""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.moving import MovedTable
from nvtrader_pipelines.storage.object_store import is_object, list_objects, read_object, write_object
from nvtrader_pipelines.storage.settings import tables_folder
from nvtrader_pipelines.storage.shared_files import SharedFiles


def move_table_files(home: Home, *, back: bool) -> list[MovedTable]:
    """Copy the tables' and the shared files to the object store of a home, or back; the source stays as it is.

    A file never changes once it is written, so one that is there already is compared only, and an interrupted move can
    be repeated.

    Returns:
        A row for each of both, whose number and digest are those of the files; none without an object store.

    Raises:
        StorageError: if a file is there with another content, or the store fails.
    """
    store = tables_folder(home)
    if not is_object(store):
        return []
    local = str(home.iceberg.absolute())
    source, target = (store, local) if back else (local, store)
    names, present = _names(source), _names(target)
    digests = {name: _copy(name, source, target, present) for name in names}
    shared, is_new = SharedFiles(home), not names <= present
    here = {str(path.relative_to(home.root)) for path in shared.files}
    there = {f"data/{name}" for name in _names(f"{shared.uri}/data")}
    for path in shared.folders if back else ():
        shared.pull(path)
    shared.push(*shared.folders)
    others = {str(path.relative_to(home.root)): _sha256(path.read_bytes()) for path in shared.files}
    return [
        MovedTable(table="files of tables", n_rows=len(names), digest=_digest(digests), is_new=is_new),
        MovedTable(
            table="policies, searches, audit",
            n_rows=len(others),
            digest=_digest(others),
            is_new=not others.keys() <= (here if back else there),
        ),
    ]


def _copy(name: str, source: str, target: str, present: Collection[str]) -> str:
    """Copy a file that is missing, read it back, and return its SHA-256."""
    content = _read(f"{source}/{name}")
    if name not in present:
        _write(f"{target}/{name}", content)
    if _read(f"{target}/{name}") != content:
        raise StorageError(
            f"{target}/{name} must be missing or equal to {source}/{name}, but has another content; name an empty "
            "folder as warehouse_uri, or move the old files away"
        )
    return _sha256(content)


def _digest(digests: Mapping[str, str]) -> str:
    return _sha256("\n".join(f"{name} {digest}" for name, digest in sorted(digests.items())).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _names(folder: str) -> set[str]:
    """Names of the files of tables below a folder; not of its locks."""
    if is_object(folder):
        return {uri.removeprefix(f"{folder}/") for uri in list_objects(folder)}
    paths = (path for path in Path(folder).glob("[!.]*/**/*") if path.is_file())
    return {str(path.relative_to(folder)) for path in paths}


def _read(path: str) -> bytes:
    return read_object(path) if is_object(path) else Path(path).read_bytes()


def _write(path: str, content: bytes) -> None:
    if is_object(path):
        write_object(path, content)
    else:
        write_atomically(Path(path), content)
