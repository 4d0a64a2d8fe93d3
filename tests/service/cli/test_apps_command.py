"""`nvtrader apps`: from prices to a verdict, and to a month on paper."""

import json

import polars as pl
import pytest

from nvtrader_pipelines.runs.ingestion import ingest_market
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.markets import synthetic_bars

pytestmark = pytest.mark.slow


def test_paper_trains_judges_and_replays_the_last_month(built_home, command, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    at_home = command(home)
    shown = at_home("apps", "paper", "--timesteps", "256", "--no-judge")
    assert shown.exit_code == 0, shown.output
    for part in ("less best baseline", "the last month on paper", "nvtrader portfolio --account paper-month"):
        assert part in shown.output
    account = json.loads(at_home("portfolio", "history", "--account", "paper-month", "--json").output)["activity"]
    assert (account["n_sessions"], account["plans"]) == (21, {"filled": 5})
    assert [policy.partition(" ")[0] for policy in account["policies"]] == ["paper-trading"]


@pytest.mark.nightly
def test_paper_goes_on_from_its_last_close_when_prices_are_new(built_home, command, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    at_home = command(home)
    first = at_home("apps", "paper", "--timesteps", "256", "--no-judge")
    assert first.exit_code == 0, first.output
    prices = pl.read_csv(home.landing / "prices.csv")
    more = prices.filter(pl.col("date") == prices["date"].max()).with_columns(date=pl.lit("2018-01-03"))
    pl.concat([prices, more]).write_csv(tmp_path / "prices.csv")
    later = at_home("apps", "paper", "--timesteps", "256", "--no-judge", "--files", str(tmp_path / "prices.csv"))
    assert later.exit_code == 0, later.output
    assert "1 file" in later.output
    account = json.loads(at_home("portfolio", "history", "--account", "paper-month", "--json").output)["activity"]
    assert account["n_sessions"] == 22
    again = at_home("apps", "paper", "--timesteps", "256", "--no-judge", "--json")
    assert {row["experiment"] for row in json.loads(again.stdout)} == {"paper-trading"}
    keys = Store(home).ledger.runs()["partition_key"].to_list()
    assert sum(key.startswith("paper-trading@") for key in keys) == 2


def test_refused_file_is_named_and_trains_nothing(home, command, tmp_path, monkeypatch):
    monkeypatch.setattr(WholeHome, "ingest", lambda family: ingest_market(family.store.tables, [2015], now()))
    home.market_file.write_text("sources: [{kind: landing}]\n")
    synthetic_bars(n_sessions=20, n_symbols=1).write_csv(home.landing / "prices.csv")
    (tmp_path / "bad.csv").write_text("hello\n")
    shown = command(home)("apps", "portfolio", "--files", str(tmp_path / "bad.csv"))
    assert (shown.exit_code, "bad.csv" in shown.stderr) == (3, True)
    assert not (home.experiments / "stock-portfolio.yaml").exists()


def test_unknown_application_exits_with_2(built_home, command):
    assert command(built_home)("apps", "bonds").exit_code == 2
