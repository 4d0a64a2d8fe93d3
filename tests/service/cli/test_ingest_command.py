import json
import shutil

import pytest

from nvtrader_pipelines.storage.home import Home


@pytest.fixture
def copied(built_home, tmp_path):
    """Copy of the built home."""
    shutil.copytree(built_home.root, tmp_path / "home", symlinks=True)
    return Home(tmp_path / "home")


def test_ingest_of_an_ingested_home_shows_its_market(copied, command):
    shown = command(copied)("ingest")
    assert shown.exit_code == 0, shown.output
    assert "market: 1 files, 2,268 rows, 2,268 kept" in shown.output
    document = json.loads(command(copied)("ingest", "--json").output)
    assert [(row["file"], row["n_kept"]) for row in document["files"]] == [("prices.csv", 2268)]
    assert [row["symbol"] for row in document["symbols"]] == ["AAA", "BBB", "CCC"]
    assert document["experiments"] == []
