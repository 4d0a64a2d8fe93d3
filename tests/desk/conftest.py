"""Fixtures of homes with an evaluated run."""

import shutil

import pytest

from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import (
    AUDIT,
    FILLS,
    ORDERS,
    PORTFOLIO_STATE,
    REBALANCE_PLAN,
    TARGET_WEIGHTS,
)
from tests.desk.desks import DESKS, judged_home, make_active

MIRRORED = (REBALANCE_PLAN, TARGET_WEIGHTS, ORDERS, FILLS, PORTFOLIO_STATE, AUDIT)


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
    if not store.tables.read(AUDIT, columns=["line"]).is_empty():
        for table in MIRRORED:
            store.tables.replace(table, to_frame(table, []), {})
    make_active(store, run)
    return store, run
