"""Ledgers in both kinds of database: a SQLite file in the home, and Postgres."""

import itertools

import pytest

from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.database import VARIABLE

NUMBERS = itertools.count()


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
