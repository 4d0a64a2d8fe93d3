import os
import sqlite3
import tarfile

import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.backups.writing import write_backup
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import lock_path
from nvtrader_pipelines.storage.iceberg.upkeep import UPKEEP_LOCK
from nvtrader_pipelines.storage.ledger.database import VARIABLE
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.tables import CLEAN_BARS
from tests.storage.table_rows import bar_rows


def names(path):
    with tarfile.open(path) as tar:
        return tar.getnames()


@pytest.fixture
def target(tmp_path):
    """File of the backup, outside the home."""
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "home.tar"


def test_backup_holds_a_digest_of_every_file_and_no_transient_one(store, home, target):
    (home.landing / "prices.csv").write_text("date\n")
    os.link(home.landing / "prices.csv", home.landing / "same.csv")
    session = SessionFolder.of(home, "20260302-aaaa")
    with session.lock():
        session.append('{"event":"base"}')
    (home.runtime / "accounts").mkdir(parents=True)
    transients = (home.runtime / ".active_policy.lock", home.landing / ".prices.csv.x.tmp", home.duckdb_file)
    for transient in (*transients, home.spans_file):
        transient.parent.mkdir(parents=True, exist_ok=True)
        transient.touch()
    seen = []
    manifest = write_backup(store, target, lambda name, size: seen.append((name, size)))
    prices = {"data/landing/prices.csv", "data/landing/same.csv"}
    assert set(manifest.files) == {*prices, "data/autoresearch/sessions/20260302-aaaa/journal.jsonl"}
    assert len({manifest.files[name] for name in prices}) == 1
    assert names(target) == [*manifest.files, "backup.json"] == [name for name, _ in seen]
    assert [path.name for path in target.parent.iterdir()] == ["home.tar"]


def test_backup_copies_the_pointer_file_before_the_audit(store, home, target):
    for path in (home.active_policy_file, store.audit.path):
        path.parent.mkdir(parents=True)
        path.write_text("{}\n")
    write_backup(store, target, lambda *_: None)
    assert names(target)[:2] == ["data/runtime/active_policy.json", "data/audit/events.jsonl"]


def test_backup_copies_journals_before_the_ledger_with_their_looks(store, home, target):
    store.ledger.register(ExperimentSpec(name="a"))
    session = SessionFolder.of(home, "20260302-aaaa")
    session.path.mkdir(parents=True)
    session.append('{"event":"verdict"}')
    write_backup(store, target, lambda *_: None)
    assert names(target)[:2] == ["data/autoresearch/sessions/20260302-aaaa/journal.jsonl", "warehouse/ledger.db"]


@pytest.mark.slow
def test_backup_holds_the_catalog_as_of_its_copy_and_the_files_it_names(store, home, target):
    for value in (1.0, 2.0):
        store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020], value), [2020])

    def commit_later(name, _size):
        if name == "warehouse/catalog.db":
            store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2021]), [2021])

    before = {path.relative_to(home.root).as_posix() for path in home.iceberg.rglob("*.*") if path.is_file()}
    manifest = write_backup(store, target, commit_later)
    held = {name for name in manifest.files if name.startswith("warehouse/iceberg/")}
    assert held == {name for name in before if not name.endswith(".lock")}


def test_backup_copies_databases_with_uncommitted_pages_elsewhere(store, home, target, tmp_path):
    store.ledger.register(ExperimentSpec(name="a"))
    writer = sqlite3.connect(home.ledger, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO specs VALUES ('half', '2020-01-01 00:00:00', NULL)")
    write_backup(store, target, lambda *_: None)
    writer.close()
    with tarfile.open(target) as tar:
        (tmp_path / "ledger.db").write_bytes(tar.extractfile("warehouse/ledger.db").read())
    with sqlite3.connect(tmp_path / "ledger.db") as copy:
        assert copy.execute("SELECT name FROM specs").fetchall() == [("a",)]


def test_backup_holds_back_the_audit_while_books_are_copied(store, home, target):
    SqliteBook(home, "paper").place()
    held = []

    def is_locked(name, _size):
        if name == book_path(home, "paper").relative_to(home.root).as_posix():
            held.append(_is_locked(store.audit.path.with_name(".events.lock")))
        held.append(_is_locked(lock_path(home, UPKEEP_LOCK)))

    write_backup(store, target, is_locked)
    assert all(held)
    assert not _is_locked(lock_path(home, UPKEEP_LOCK))


def _is_locked(path):
    import fcntl

    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_backup_names_a_ledger_in_postgres_without_its_password(store, target, monkeypatch):
    monkeypatch.setenv(VARIABLE, "postgresql://ann:secret@host/ledger")
    manifest = write_backup(store, target, lambda *_: None)
    assert len(manifest.outside) == 1
    assert "ann:***@host/ledger" in manifest.outside[0]


def test_backup_holds_a_ledger_in_another_file(store, home, target, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path}/other.db")
    store.ledger.register(ExperimentSpec(name="a"))
    manifest = write_backup(store, target, lambda *_: None)
    assert ("warehouse/ledger.db" in manifest.files, manifest.outside) == (True, ())


def test_failed_backup_leaves_no_file(store, home, target):
    (home.landing / "prices.csv").write_text("date\n")

    def fail(_name, _size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_backup(store, target, fail)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("place", ["data/home.tar", "warehouse/home.tar", "taken.tar"])
def test_backup_over_a_file_or_inside_the_home_is_refused(store, home, place):
    (home.root / "taken.tar").touch()
    with pytest.raises(StorageError):
        write_backup(store, home.root / place, lambda *_: None)


def test_backup_of_a_home_that_lacks_a_data_file_is_refused(store, home, target):
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    (file,) = home.iceberg.rglob("*.parquet")
    file.unlink()
    with pytest.raises(StorageError):
        write_backup(store, target, lambda *_: None)
    assert not target.exists()
