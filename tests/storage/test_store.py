import subprocess
import sys

import numpy as np
import pytest

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.storage.store import Store
from tests.runs.small_runs import N_SESSIONS, land

CHOICE = MarketChoice(source="landing")


def test_store_opens_each_part_once(store):
    for part in ("tables", "ledger", "policies", "audit", "panels"):
        assert getattr(store, part) is getattr(store, part)


def test_store_audit_needs_neither_iceberg_nor_the_ledger(home):
    script = (
        "import sys; from pathlib import Path; from nvtrader_pipelines.storage.home import Home; "
        "from nvtrader_pipelines.storage.store import Store; "
        "Store(Home(Path(sys.argv[1]))).audit.events(); "
        "print({'pyiceberg', 'sqlalchemy', 'torch'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script, str(home.root)], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
    assert not home.warehouse.exists()


@pytest.mark.slow
def test_store_panel_is_read_again_once_other_snapshots_are_pinned(store):
    land(store, N_SESSIONS)
    before = store.panels.read(CHOICE)
    assert store.panels.read(CHOICE) is before
    land(Store(store.home), N_SESSIONS + 5)  # another process
    after = store.panels.read(CHOICE)
    assert len(after.sessions) == len(before.sessions) + 5
    np.testing.assert_array_equal(after.sessions[: len(before.sessions)], before.sessions)
