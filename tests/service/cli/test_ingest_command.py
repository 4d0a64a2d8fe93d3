import json

import pytest

from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, RUNS
from tests.homes import small_home

pytestmark = pytest.mark.slow


def test_ingest_shows_files_symbols_and_warnings_and_trains_nothing(tmp_path, command):
    home = small_home(tmp_path / "home")
    (home.landing / "notes.txt").write_text("hello\n")
    nvtrader = command(home)
    shown = nvtrader("ingest")
    assert shown.exit_code == 0, shown.output
    assert "market: 2 files, 2,268 rows, 2,268 kept" in shown.output
    assert "warning: notes.txt was refused" in shown.output
    document = json.loads(nvtrader("ingest", "--json").output)
    assert [(row["file"], row["n_kept"]) for row in document["files"]] == [("notes.txt", 0), ("prices.csv", 2268)]
    assert [row["symbol"] for row in document["symbols"]] == ["AAA", "BBB", "CCC"]
    tables = Store(home).tables
    assert (len(tables.read(CLEAN_BARS)), len(tables.read(RUNS))) == (2268, 0)
