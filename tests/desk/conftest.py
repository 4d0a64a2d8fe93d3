"""Fixtures of homes with an evaluated run."""

import pytest

from nvtrader_pipelines.storage.store import Store
from tests.desk.desks import DESKS, make_active
from tests.homes import copy_home
from tests.runs.untrained import KEY


@pytest.fixture(scope="session")
def judged(evaluated_home, tmp_path_factory):
    """Home with an evaluated run, to which tests may add runs."""
    store = Store(copy_home(evaluated_home, tmp_path_factory.mktemp("judged") / "home"))
    return store, store.policies.read_latest(KEY)


@pytest.fixture(scope="session")
def active_home(evaluated_home, tmp_path_factory):
    """Home with an active policy; read it, never write it."""
    store = Store(copy_home(evaluated_home, tmp_path_factory.mktemp("active") / "home"))
    make_active(store, store.policies.read_latest(KEY))
    return store.home


@pytest.fixture
def trading_home(active_home, tmp_path, monkeypatch):
    """Copy of a home with an active policy, without accounts."""
    DESKS.clear()
    monkeypatch.delenv("NVTRADER_KILL_SWITCH", raising=False)
    store = Store(copy_home(active_home, tmp_path / "trading"))
    return store, store.policies.read_latest(KEY)
