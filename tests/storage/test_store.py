import errno
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import AUDIT
from tests.runs.small_runs import N_SESSIONS, land

CHOICE = MarketChoice(source="landing")


def test_store_opens_each_part_once(store):
    for part in ("tables", "ledger", "policies", "audit", "panels"):
        assert getattr(store, part) is getattr(store, part)


@pytest.mark.slow
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


def test_home_that_may_only_be_read_is_read(tmp_path, monkeypatch):
    home = Home(tmp_path)
    written = Store(home)
    written.ledger.runs()
    written.tables.replace(AUDIT, written.tables.read(AUDIT), {})
    for database in (home.ledger, home.catalog):
        shutil.copy(database, tmp_path / "copy.db")  # without the journals of open connections
        (tmp_path / "copy.db").replace(database)
    monkeypatch.setattr("os.access", lambda *_: False)
    store = Store(home)
    assert (len(store.ledger.runs()), len(store.tables.read(AUDIT))) == (0, 0)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("exists", [True, False])
def test_lock_of_a_folder_that_may_only_be_read_is_not_needed(tmp_path, monkeypatch, number, exists):
    path = tmp_path / ".lock"
    if exists:
        path.touch()
    opened = Path.open

    def open_read_only(self, mode="r", **options):
        if "a" in mode:
            raise OSError(number, "read-only")
        return opened(self, mode, **options)

    monkeypatch.setattr(Path, "open", open_read_only)
    with file_lock(path):
        assert path.exists() == exists
