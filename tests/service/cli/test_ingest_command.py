import json
import re
import shutil

import polars as pl
import pytest

from nvtrader_pipelines.storage.home import Home
from tests.homes import small_home, write_experiment
from tests.markets import synthetic_bars


@pytest.fixture
def copied(built_home, tmp_path):
    """Copy of the built home."""
    shutil.copytree(built_home.root, tmp_path / "home", symlinks=True)
    return Home(tmp_path / "home")


def test_ingest_of_an_unchanged_market_prints_one_line(copied, command):
    shown = command(copied)("ingest")
    assert shown.exit_code == 0, shown.output
    (line,) = shown.output.splitlines()
    assert line.startswith("nothing new: 3 symbols, 2015-01-02 to 2018-01-02")
    document = json.loads(command(copied)("ingest", "--json").output)
    assert [(row["file"], row["n_kept"]) for row in document["files"]] == [("prices.csv", 2268)]
    assert [row["symbol"] for row in document["symbols"]] == ["AAA", "BBB", "CCC"]
    assert document["experiments"] == []


@pytest.mark.slow
def test_ingest_of_a_file_copies_it_into_the_landing_folder(home, command, tmp_path):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    bars, prices = synthetic_bars(n_sessions=60, n_symbols=2), tmp_path / "more.csv"
    bars.filter(symbol="AAA").write_csv(home.landing / "prices.csv")
    bars.filter(symbol="BBB").write_csv(prices)
    shown = command(home)("ingest", str(prices), "--json")
    assert shown.exit_code == 0, shown.output
    assert [row["symbol"] for row in json.loads(shown.output)["symbols"]] == ["AAA", "BBB"]
    assert (home.landing / "more.csv").read_bytes() == prices.read_bytes()
    missing = command(home)("ingest", str(tmp_path / "none.csv"))
    assert missing.exit_code == 3
    assert "none.csv must be a file of prices, but does not exist" in missing.stderr


@pytest.mark.nightly
@pytest.mark.slow
def test_each_printed_cure_of_a_long_gap_works(tmp_path, command):
    home = small_home(tmp_path / "home")
    prices, at_home = home.landing / "prices.csv", command(home)
    whole = synthetic_bars(n_sessions=756)
    days = whole["date"].unique().sort()[300:330]
    whole.filter((pl.col("symbol") != "BBB") | ~pl.col("date").is_in(days.implode())).write_csv(prices)

    def validate(**market):
        write_experiment(home, market={"source": "landing", **market})
        (row,) = json.loads(at_home("experiments", "validate", "--json").output)
        return row["problem"], [each for each in row["warnings"] or () if "BBB" in each]

    shown = at_home("ingest")
    (warning,) = [line for line in shown.output.split("\n") if line.startswith("warning: BBB: left out")]
    longer = int(re.findall(r"raise the experiment's market.max_gap to (\d+)", warning)[0])
    assert longer == 30
    assert validate() == (None, [warning.removeprefix("warning: ")])
    problem, _ = validate(symbols=["AAA", "BBB"])
    assert re.findall(r"deliver the missing bars|market.max_gap to 30|leave BBB out of market.symbols", problem) == [
        "deliver the missing bars",
        "market.max_gap to 30",
        "leave BBB out of market.symbols",
    ]
    assert validate(symbols=["AAA"]) == validate(symbols=["AAA", "BBB"], max_gap=longer) == (None, [])
    assert validate(max_gap=longer) == (None, [])
    whole.write_csv(prices)
    assert at_home("ingest").exit_code == 0
    assert validate() == validate(symbols=["AAA", "BBB"]) == (None, [])
