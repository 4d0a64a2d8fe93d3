"""Resources of the assets."""

import pytest

from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store


@pytest.mark.parametrize(("configured", "file", "acknowledges"), [(0, 0, False), (1, 0, True), (0, 1, True)])
def test_acknowledges_configured_or_in_the_account_file_acknowledges(tmp_path, configured, file, acknowledges):
    store = Store(Home(tmp_path))
    if file:
        store.home.accounts.mkdir(parents=True)
        (store.home.accounts / "paper.yaml").write_text("kind: simulated\nacknowledge: true\n")
    assert DeskResource(acknowledge=bool(configured)).acknowledges(store) is acknowledges
