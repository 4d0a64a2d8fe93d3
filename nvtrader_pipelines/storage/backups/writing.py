"""Write a backup while other processes use the home.

A file that refers to others is copied before them, so that the backup holds every file it names: first the records of
finished work and the databases, then the catalog with the files of its tables, then the audit with the books, then
everything else. SQLite copies its databases consistently; files of tables never change, and upkeep waits.
"""

import hashlib
import io
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from pyiceberg.table import StaticTable

from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.backups.restoring import MANIFEST_NAME, BackupManifest, OnFile
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.file_problems import find_damage, has_catalog
from nvtrader_pipelines.storage.files import open_sqlite
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.catalog import DAMAGE_ERRORS, io_properties
from nvtrader_pipelines.storage.iceberg.snapshots import reachable_paths
from nvtrader_pipelines.storage.iceberg.upkeep import UPKEEP_LOCK
from nvtrader_pipelines.storage.ledger.database import ledger_url
from nvtrader_pipelines.storage.locks import home_lock
from nvtrader_pipelines.storage.object_store import is_object
from nvtrader_pipelines.storage.settings import database_url, tables_folder
from nvtrader_pipelines.storage.store import Store

RECORDS = (  # of finished work
    "warehouse/*.json",
    "warehouse/scorecards/**/*",
    "data/rl/policies/*/latest.json",
    "data/autoresearch/sessions/*/journal.jsonl",  # before the ledger with their looks
    "data/runtime/active_policy.json",
)
NOT_WALKED = ("warehouse/iceberg", "warehouse/dagster/storage", "warehouse/dagster/logs", "data/traces")
SQLITE = b"SQLite format 3\0"


def write_backup(store: Store, path: Path, on_file: OnFile) -> BackupManifest:
    """Write a backup of a home; if it fails, no file is left.

    Raises:
        StorageError: if the file exists or lies inside the home's folders, or a file of the home is damaged or
            missing.
    """
    home = store.home
    _require_new(home, path)
    for error in find_damage(home):
        raise error
    with (
        _write_aside(path) as file,
        home_lock(home, UPKEEP_LOCK),
        tarfile.open(fileobj=file, mode="w", dereference=True) as tar,  # a second hard link has its content, too
    ):
        writer = _TarWriter(tar, home, on_file)
        for pattern in RECORDS:
            writer.add_files(home.root.glob(pattern))
        outside = writer.add_ledger()
        writer.add_files(path for path in home.warehouse.rglob("*.db") if path != home.catalog)
        outside += writer.add_tables(store)
        with store.audit.lock():  # a trader writes to both in turns
            books = store.books().values()
            writer.add_files([store.audit.path, *(book.path for book in books if isinstance(book, SqliteBook))])
        writer.add_files(_walk(home))
        manifest = BackupManifest(
            version=version("nvtrader-pipelines"),
            created_at=datetime.now(UTC),
            root=str(home.root),
            outside=outside,
            files=writer.digests,
        )
        writer.add(MANIFEST_NAME, io.BytesIO(manifest.model_dump_json(indent=1).encode()))
    return manifest


class _TarWriter:
    """Tar file of a home; the first copy of a file counts."""

    def __init__(self, tar: tarfile.TarFile, home: Home, on_file: OnFile) -> None:
        self._tar, self._home, self._on_file = tar, home, on_file
        self.digests: dict[str, str] = {}

    def add_files(self, paths: Iterator[Path] | list[Path]) -> None:
        """Add files of the home; one that was deleted meanwhile is left out."""
        for path in sorted(paths):
            name = path.relative_to(self._home.root).as_posix()
            if name in self.digests or not path.is_file() or _is_transient(path):
                continue
            try:
                self._add_file(name, path)
            except FileNotFoundError:  # for example a checkpoint of a policy that is now trained
                continue

    def add_ledger(self) -> tuple[str, ...]:
        """Add the ledger if it is a file, wherever that is; return what is outside the backup."""
        url = ledger_url(self._home)
        if url.get_backend_name() != "sqlite":
            return (f"the ledger {url.render_as_string(hide_password=True)}: back it up with pg_dump",)
        if (path := Path(str(url.database))).is_file():
            self._add_file(self._home.ledger.relative_to(self._home.root).as_posix(), path)
        return ()

    def add_tables(self, store: Store) -> tuple[str, ...]:
        """Add the catalog if it is a file, and all files that its tables refer to; return what is outside.

        Raises:
            StorageError: if a table lacks a file, or one is damaged.
        """
        outside: tuple[str, ...] = ()
        if not has_catalog(self._home):
            return outside
        if url := database_url(self._home):
            locations = list(store.tables.metadata_files().values())
            name = url.render_as_string(hide_password=True)
            outside = (f"the catalog, books, kill switch and histories in {name}: back them up with pg_dump, too",)
        else:
            locations = self._add_catalog()
        if is_object(folder := tables_folder(self._home)):
            return (*outside, f"the tables in {folder}: copy its objects, too, such as with `aws s3 sync`")
        paths: set[Path] = set()
        for location in locations:
            try:
                table = StaticTable.from_metadata(location, io_properties(self._home))
                paths.update(map(Path, reachable_paths(table)))
            except DAMAGE_ERRORS as error:
                raise StorageError(
                    f"a table lacks a file, or has a damaged one (see `nvtrader doctor`): {location}; restore the home "
                    "from an earlier backup"
                ) from error
        needed = [path for path in paths if path.suffix != ".json"]  # earlier metadata may be deleted
        missing = [path for path in needed if not path.is_file()]
        if missing:
            raise StorageError(f"a table lacks the file {missing[0]}; restore the home from an earlier backup")
        self.add_files(list(paths))
        return outside

    def _add_catalog(self) -> list[str]:
        """Add the catalog's file; return the metadata files of its tables."""
        with _database_copy(self._home.catalog) as copy:
            with closing(sqlite3.connect(copy.name)) as catalog:
                locations = [row[0] for row in catalog.execute("SELECT metadata_location FROM iceberg_tables")]
            self.add("warehouse/catalog.db", copy)
        return locations

    def _add_file(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            is_database = file.read(len(SQLITE)) == SQLITE
            file.seek(0)
            if not is_database:
                self.add(name, file)
                return
        with _database_copy(path) as copy:
            self.add(name, copy)

    def add(self, name: str, file: BinaryIO) -> None:
        """Add an open file, as long as it is now."""
        if isinstance(file, io.BytesIO):
            member = tarfile.TarInfo(name)
            member.size = file.getbuffer().nbytes
        else:
            member = self._tar.gettarinfo(arcname=name, fileobj=file)
        reader = _DigestReader(file)
        self._tar.addfile(member, reader)  # pyright: ignore[reportArgumentType] - it only reads
        self.digests[name] = reader.digest.hexdigest()
        self._on_file(name, member.size)


class _DigestReader:
    """Reader that digests the content it reads."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self.digest.update(content)
        return content


@contextmanager
def _database_copy(path: Path) -> Iterator[BinaryIO]:
    """Copy a SQLite database at one moment, while others write to it."""
    with tempfile.NamedTemporaryFile(suffix=".db") as copy:
        with open_sqlite(path) as source, closing(sqlite3.connect(copy.name)) as target:
            source.backup(target)
        with Path(copy.name).open("rb") as file:
            yield file


@contextmanager
def _write_aside(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name once it is complete and synced."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _require_new(home: Home, path: Path) -> None:
    if path.exists():
        raise StorageError(f"a backup must be a new file, but {path} exists; name another file")
    inside = [place for place in (home.root / "data", home.warehouse) if path.resolve().is_relative_to(place.resolve())]
    if inside:
        raise StorageError(f"a backup must lie outside {inside[0]}, which it holds; name a file elsewhere")


def _walk(home: Home) -> Iterator[Path]:
    """Files of a home outside folders that are rebuilt or hold logs; links are followed, each folder once."""
    seen, skipped = set(), {home.root / place for place in NOT_WALKED}
    for top in (home.root / "data", home.warehouse):
        for folder, folders, names in os.walk(top, followlinks=True):
            place = Path(folder)
            if place in skipped or (real := place.resolve()) in seen:
                folders.clear()
                continue
            seen.add(real)
            yield from (place / name for name in names)


def _is_transient(path: Path) -> bool:
    """Whether a file is a lock, temporary, part of an open database, or the views."""
    name = path.name
    return (
        (name.endswith(".lock") and path.stat().st_size == 0)
        or (name.startswith(".") and name.endswith(".tmp"))
        or name.endswith((".db-wal", ".db-shm", ".db-journal"))
        or name.startswith("nvtrader.duckdb")
    )
