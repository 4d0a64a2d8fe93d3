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
    assert "market: 1 file, 2,268 rows, 2,268 kept" in shown.output
    document = json.loads(command(copied)("ingest", "--json").output)
    assert [(row["file"], row["n_kept"]) for row in document["files"]] == [("prices.csv", 2268)]
    assert [row["symbol"] for row in document["symbols"]] == ["AAA", "BBB", "CCC"]
    assert document["experiments"] == []


def test_ingest_of_a_file_copies_it_into_the_landing_folder(copied, command, tmp_path):
    prices = tmp_path / "more.csv"
    prices.write_text((copied.landing / "prices.csv").read_text().replace("AAA", "DDD"))
    shown = command(copied)("ingest", str(prices), "--json")
    assert shown.exit_code == 0, shown.output
    assert [row["symbol"] for row in json.loads(shown.output)["symbols"]] == ["AAA", "BBB", "CCC", "DDD"]
    assert (copied.landing / "more.csv").read_bytes() == prices.read_bytes()
    missing = command(copied)("ingest", str(tmp_path / "none.csv"))
    assert missing.exit_code == 3
    assert "none.csv must be a file of prices, but does not exist" in missing.stderr
