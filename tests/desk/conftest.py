"""Fixtures of homes with an evaluated run."""

import shutil

import pytest

from nvtrader_pipelines.storage.store import Store
from tests.desk.desks import DESKS, judged_home, make_active


@pytest.fixture(scope="session")
def judged(tmp_path_factory):
    """Home with an evaluated run, only to be read or reset."""
    return judged_home(tmp_path_factory.mktemp("desk") / "home")


@pytest.fixture
def trading_home(judged, monkeypatch):
    """Home with an active policy, without accounts and events."""
    store, run = Store(judged[0].home), judged[1]
    DESKS.clear()
    monkeypatch.delenv("NVTRADER_KILL_SWITCH", raising=False)
    for folder in (store.home.runtime, store.home.audit, store.home.accounts):
        shutil.rmtree(folder, ignore_errors=True)
    make_active(store, run)
    return store, run
