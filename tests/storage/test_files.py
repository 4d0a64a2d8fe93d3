import os
import sqlite3

import pytest

from nvtrader_pipelines.storage.errors import DamagedFileError
from nvtrader_pipelines.storage.files import append_rotated, open_sqlite, set_aside, write_atomically


def test_write_atomically_creates_file_and_folders(tmp_path):
    path = tmp_path / "a" / "b.json"
    write_atomically(path, b"{}")
    assert path.read_bytes() == b"{}"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("before", "after"), [("", "b\n"), ("a\n", "a\nb\n"), ("a", "a\nb\n")])
def test_append_rotated_begins_a_new_line_after_a_torn_one(before, after, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(before)
    append_rotated(path, "b\n", 100)
    assert path.read_text() == after


def test_interrupted_write_leaves_only_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.zip"
    write_atomically(path, b"old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("a.zip", b"old")]


def test_open_sqlite_refuses_a_damaged_file_but_not_a_wrong_query(tmp_path):
    path = tmp_path / "a.db"
    path.write_text("no database" * 100)
    with pytest.raises(DamagedFileError), open_sqlite(path) as database:
        database.execute("SELECT 1 FROM t")
    path.write_bytes(b"")
    with pytest.raises(DamagedFileError), open_sqlite(path) as database:
        database.execute("SELECT 1 FROM t")
    sqlite3.connect(path).execute("CREATE TABLE u (n)")
    with pytest.raises(sqlite3.OperationalError), open_sqlite(path) as database:
        database.execute("SELECT 1 FROM t")


def test_set_aside_renames_a_database_with_its_journals_and_keeps_all(tmp_path):
    path, names = tmp_path / "a.db", ("a.db", "a.db-journal", "a.db-wal")
    for end in (".damaged", ".damaged-2"):
        for name in names:
            (tmp_path / name).write_text(end)
        assert set_aside(path) == tmp_path / f"a.db{end}"
    found = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert found == {name + end: end for name in names for end in (".damaged", ".damaged-2")}
    assert set_aside(path) is None
