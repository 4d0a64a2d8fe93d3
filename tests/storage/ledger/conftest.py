"""A ledger in each kind of database: a SQLite file of the home, and a Postgres server started for the tests."""

import itertools
import tempfile

import pytest

from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.database import VARIABLE

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A Postgres of its own, on a socket; in no folder of pytest, which the user that root runs it as cannot enter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        import pgserver
    found = pgserver.get_server(tempfile.mkdtemp(prefix="nvtrader-postgres-"), cleanup_mode="delete")
    yield found
    found.cleanup()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def kind(request, monkeypatch):
    """The name of a kind of database, which is empty and the one that a ledger opens."""
    if request.param == "postgres":
        server, name = request.getfixturevalue("server"), f"test_{next(NUMBERS)}"
        server.psql(f"CREATE DATABASE {name}")
        monkeypatch.setenv(VARIABLE, server.get_uri(name))
    return request.param


@pytest.fixture
def ledger(kind, home):
    """An empty ledger."""
    return Ledger.open(home)
