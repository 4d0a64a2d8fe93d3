from importlib.resources import files
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.database import VARIABLE, Database, ledger_url
from nvtrader_pipelines.storage.ledger.schema import EARLIER_REVISIONS, HEAD, METADATA, VERSION_TABLE
from tests.storage.ledger.run_rows import SPEC
from tests.storage.table_rows import start

SECRET = "correct-horse-battery-staple"


def test_ledger_without_url_is_a_file_in_the_home(home):
    Ledger.open(home)
    assert ledger_url(home).database == str(home.ledger)
    assert home.ledger.exists()


def test_ledger_url_may_name_another_file(home, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path}/deep/it's 100% mine.db")
    Ledger.open(home).register(SPEC)
    assert (tmp_path / "deep" / "it's 100% mine.db").exists()
    assert not home.ledger.exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"postgres:{SECRET}", "but it is not a URL"),
        (f"postgresql://me:{SECRET}@host:port/database", "but it is not a URL"),
        (f"mysql://me:{SECRET}@host/database", "but it names mysql"),
        ("sqlite://", "but it names no file"),
        ("sqlite:///:memory:", "but it names no file"),
    ],
)
def test_invalid_url_is_refused_without_its_password(home, monkeypatch, url, message):
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(StorageError) as caught:
        Ledger.open(home)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["postgresql://me:{}@127.0.0.1:1/ledger", "postgresql+asyncpg://me:{}@127.0.0.1:1/ledger"]
)
def test_unreachable_server_is_reported_without_its_password(home, monkeypatch, url):
    monkeypatch.setenv(VARIABLE, url.format(SECRET))
    with pytest.raises(StorageError) as caught:
        Ledger.open(home)
    assert SECRET not in "".join(map(str, (caught.value, caught.value.__cause__)))
    assert caught.value.__suppress_context__
    assert SECRET not in repr(Database.connect(sa.make_url(url.format(SECRET).replace("+asyncpg", "+psycopg"))))


def test_damaged_ledger_file_is_refused(home):
    home.warehouse.mkdir()
    home.ledger.write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError):
        Ledger.open(home)


def test_sqlite_pragmas_are_wal_durable_and_check_foreign_keys(home):
    Ledger.open(home)
    with Database.open(home).connection() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers", "busy_timeout")
        }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "recursive_triggers": 1,
        "busy_timeout": 60_000,
    }


def test_migrations_create_the_declared_tables(kind, home):
    Ledger.open(home)
    with Database.open(home).connection() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []


def test_ledger_migrations_are_the_head_and_the_earlier_ones(kind, home):
    config = Config()
    config.set_main_option("script_location", str(files("nvtrader_pipelines.storage.ledger") / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()] == [HEAD, *EARLIER_REVISIONS]
    assert Database.connect(ledger_url(home)).revision() is None
    assert Database.open(home).revision() == HEAD


def test_reopened_ledger_holds_the_same_versions(kind, home):
    key = Ledger.open(home).register(SPEC)
    Database.open(home).create()
    assert Ledger.open(home).read(key) == SPEC


def test_ledger_of_an_earlier_revision_is_migrated_with_its_rows(kind, home):
    key = Ledger.open(home).register(SPEC)
    with Database.open(home).transaction() as connection:
        connection.execute(sa.text("ALTER TABLE specs DROP COLUMN archived_at"))
        connection.execute(sa.text("ALTER TABLE runs DROP COLUMN deleted_at"))
        connection.execute(sa.text("ALTER TABLE versions DROP COLUMN kind"))
        connection.execute(sa.text("DROP TABLE looks"))
        connection.execute(sa.text("DROP TABLE annotations"))
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{EARLIER_REVISIONS[-1]}'"))
    ledger = Ledger.open(home)
    assert Database.connect(ledger_url(home)).revision() == HEAD
    assert (ledger.read(key), ledger.archived_names(), ledger.deleted_ids()) == (SPEC, set(), [])


@pytest.mark.parametrize("revision", ["0001", "9.9.9"])
def test_ledger_of_another_revision_is_refused_and_unchanged(kind, home, revision):
    with Database.open(home).transaction() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    with pytest.raises(StorageError):
        Ledger.open(home)
    assert Database.connect(ledger_url(home)).revision() == revision


def test_failed_migration_leaves_nothing_behind(kind, home):
    database = Database.connect(ledger_url(home))
    home.warehouse.mkdir()
    with database.transaction() as connection:
        if kind == "postgres":
            connection.execute(sa.text("CREATE SCHEMA ledger"))
        connection.execute(sa.text("CREATE TABLE events (unrelated INTEGER)"))
    with pytest.raises(StorageError):
        Ledger.open(home)
    with database.transaction() as connection:
        assert sa.inspect(connection).get_table_names() == ["events"]
        connection.execute(sa.text("DROP TABLE events"))
    assert Ledger.open(home).versions().is_empty()


@pytest.mark.slow
def test_other_tables_in_the_same_postgres_are_untouched(server, home, monkeypatch):
    server.psql("CREATE DATABASE shared")
    monkeypatch.setenv(VARIABLE, server.get_uri("shared"))
    database = Database.connect(ledger_url(home))
    with database.transaction() as connection:
        connection.execute(sa.text("CREATE TABLE public.runs (unrelated INTEGER)"))
    Ledger.open(home).register(SPEC)
    with database.connection() as connection:
        tables = sa.inspect(connection).get_table_names("public"), sa.inspect(connection).get_table_names("ledger")
    assert tables[0] == ["runs"]
    assert set(tables[1]) == {"specs", "versions", "runs", "policies", "events", "looks", "annotations", VERSION_TABLE}


@pytest.mark.slow
def test_up_to_date_ledger_opens_without_importing_alembic(home):
    Ledger.open(home)
    script = """
import sys
from pathlib import Path
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import Ledger
Ledger.open(Home(Path(sys.argv[1])))
print("alembic" in sys.modules)
"""
    assert start(script, home.root).communicate(timeout=120)[0] == "False\n"


def open_files():
    found = Path("/proc/self/fd").iterdir()
    return {link.readlink() for link in found if link.is_symlink()}  # the descriptor of this listing is closed by now


def test_connections_close_with_the_ledger(home):
    ledger = Ledger.open(home)
    ledger.register(SPEC)
    assert home.ledger in open_files()
    del ledger
    assert home.ledger not in open_files()
