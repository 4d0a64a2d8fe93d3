"""Back-tests of strategies and policies on engines, from the stores of a home to the commands."""

import json
from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.desk import engine_backtests
from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment
from nvtrader_pipelines.desk.engine_backtests import (
    NO_LOSSES,
    BacktestInput,
    find_subject,
    read_first_closes,
    run_backtest,
)
from nvtrader_pipelines.evaluation.engines import EventDriven, LimitReversion, RebalanceStrategy
from nvtrader_pipelines.evaluation.engines.bars import market_bars
from nvtrader_pipelines.policies.weights_table import WeightsPolicy
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.runs import Runs
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.panel_prices import read_prices
from nvtrader_pipelines.storage.store import Store
from tests.evaluation.engines.markets import FREE, hand_made
from tests.runs.untrained import KEY


@pytest.fixture(scope="module")
def store(evaluated_home):
    return Store(evaluated_home)


@pytest.fixture(scope="module")
def runs(store):
    return Runs(OpenHome(store, "ann", is_quiet=True))


@pytest.mark.parametrize(
    ("timing", "whole_shares", "equity", "difference", "reason"),
    [  # half of 1,000,000 is 5,000 shares at the close of 100, which cost 550,000 at the open of 110
        ("next", False, 450_000.0 + 5_000 * 121.0, 5_000.0, "fill at the next open, so it is the gap in between"),
        ("next_open", False, 1_050_000.0, 0.0, "it is rounding, and costs where a name has no price"),
        ("next_open", True, 1_000_000.0 + 4_545 * 11.0, -5.0, "it is rounding, and costs where a name has no price"),
    ],
)
def test_difference_to_walk_is_the_gap_to_the_fill(timing, whole_shares, equity, difference, reason):
    engine = EventDriven(timing=timing, whole_shares=whole_shares)
    panel = hand_made([(110.0, 121.0, 110.0, 121.0)], [(121.0, 121.0, 121.0, 121.0)])
    half = WeightsPolicy(panel.sessions[:1], np.array([[0.5, 0.5]]))  # decides once: a second account gets the same
    document = run_backtest(BacktestInput("half", half, panel, FREE, note=NO_LOSSES), engine, (0, 2))
    assert (document.equity, document.walk_difference) == pytest.approx((equity, difference), abs=1e-6)
    assert document.note.startswith(f"{difference:+,.2f} to the same decisions in walk: ")
    assert document.note.endswith(f"{reason}{NO_LOSSES}")


def test_document_counts_orders_by_reason_and_values_positions():
    panel = hand_made([(98.0, 99.0, 97.0, 98.0)], [(100.0, 103.0, 100.0, 102.0)], [(102.0, 102.5, 102.0, 102.0)])
    subject = BacktestInput("limits", LimitReversion(discount=0.01, premium=0.06), panel, FREE)
    document = run_backtest(subject, EventDriven(whole_shares=True), (0, 3))
    assert (document.n_orders, document.n_filled, document.n_ended) == (3, 1, 2)
    assert document.frame("reasons").rows() == [("ended", "the limit is outside the bar's range", 2)]
    (position,) = document.positions  # sized at the close of 100, filled at the open of 98 below the limit of 99
    assert (position.symbol, position.shares) == (panel.symbols[0], 10_000)
    assert (position.value, document.equity) == pytest.approx((10_000 * 102.0, 10_000 * (102.0 + 2.0)))
    assert position.weight == pytest.approx(position.value / document.equity)
    assert (document.sharpe, document.turnover_per_year, document.walk_difference, document.note) == (*[None] * 3, "")


@pytest.mark.slow
def test_policy_trades_from_its_first_test_session_as_in_account_backtests(store, runs):
    run = store.policies.read_latest(KEY)
    deployment = open_deployment(store, run.run_id, "small")
    days = deployment.panel.sessions
    document = runs.backtest("small", {"engine": "walk"})
    assert (document.first_session, document.last_session) == (days[deployment.first + 1].item(), days[-1].item())
    expected = account_backtest(deployment, days[deployment.first].item(), days[-1].item())
    assert document.equity == pytest.approx(1e6 * expected["equity"][-1], rel=1e-12)
    shares = runs.backtest("small", {"timing": "next_open"})
    assert (shares.equity, shares.walk_difference) == pytest.approx((document.equity, 0.0), abs=1e-4)
    assert (shares.sharpe, shares.sharpe_low) == pytest.approx((document.sharpe, document.sharpe_low))
    window = runs.backtest("small", {"first": days[-10].item(), "last": days[-3].item()})
    assert (window.first_session, window.last_session, window.n_sessions) == (days[-10].item(), days[-3].item(), 8)


@pytest.mark.slow
def test_shares_are_of_the_prices_in_the_store(store, runs):
    panel, document = find_subject(store, "limit_reversion").panel, runs.backtest("limit_reversion")
    prices = dict(zip(panel.symbols, read_prices(store.tables, panel).last_closes[-1], strict=True))
    assert (document.source, document.positions != ()) == ("landing", True)
    for position in document.positions:
        assert position.shares * prices[position.symbol] == pytest.approx(position.value, rel=1e-4)


def test_first_close_of_a_later_listing_leads_to_its_first_bar(store, monkeypatch):
    panel = find_subject(store, "limit_reversion").panel
    prices = read_prices(store.tables, panel)
    closes, returns = prices.closes.copy(), panel.close_returns.copy()
    closes[:50, 1], closes[:, 2], returns[:51, 1] = np.nan, np.nan, 0.0
    monkeypatch.setattr(engine_backtests, "read_prices", lambda *_: replace(prices, closes=closes))
    late = replace(panel, close_returns=returns)
    firsts = read_first_closes(store, late)
    assert list(firsts) == [*panel.symbols[:2]]
    assert firsts[panel.symbols[0]] == closes[0, 0]
    assert market_bars(late, firsts).closes[50:, 1] == pytest.approx(closes[50:, 1], rel=1e-4)


@pytest.mark.slow
def test_command_writes_the_document_and_its_picture(evaluated_home, command, runs, tmp_path):
    picture = tmp_path / "small.svg"
    options = ["--whole-shares", "--to", "2016-08-01", "-o", str(picture)]
    shown = command(evaluated_home)("backtest", "small", *options, "--json")
    document = json.loads(shown.stdout)
    assert picture.read_text().startswith("<?xml")
    settings = {"whole_shares": True, "last": "2016-08-01", "output": picture}
    assert document == runs.backtest("small", settings).model_dump(mode="json")
    assert (document["n_sessions"], document["sharpe"]) == (20, None)
    assert {row["reason"] for row in document["reasons"]} == {"rounded down to whole shares"}
    assert all(row["shares"] == int(row["shares"]) for row in document["positions"])
    assert "()" not in command(evaluated_home)("backtest", "limit_reversion", "--to", "2016-01-05").stdout
    assert command(evaluated_home)("backtest", "small", "--engine", "vectorised").exit_code == BAD_INPUT


@pytest.mark.slow
def test_strategy_asks_the_policy_that_is_named_as_its_agent(store, runs):
    rebal_freq = store.ledger.read(KEY).environment.rebal_freq
    asked = runs.backtest("rebalance", {"agent": "small", "last": "2016-08-01"})
    assert (asked.name, asked.walk_difference) == ("rebalance", None)
    assert rebal_freq == RebalanceStrategy().rebal_freq
    assert asked.equity == pytest.approx(runs.backtest("small", {"last": "2016-08-01"}).equity, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "settings", "error"),
    [
        ("limt_reversion", {}, NotFoundError),
        ("rebalance", {}, ValueError),
        ("rebalance", {"agent": "limit_reversion"}, ValueError),
        ("small", {"agent": "small"}, ValueError),
        ("limit_reversion", {"engine": "walk"}, ValueError),
        ("limit_reversion", {"source": "none"}, StorageError),
        ("limit_reversion", {"first": "2000-01-03"}, ValueError),
        ("small", {"engine": "vectorised"}, ValueError),
        ("small", {"engine": "walk", "timing": "next"}, StorageError),
        ("small", {"engine": "wlk"}, StorageError),
        ("small", {"source": "landing"}, ValueError),
        ("small", {"first": "2016-03-01"}, ValueError),
        ("small", {"first": "2016-08-01", "last": "2016-07-29"}, ValueError),
        ("small", {"output": "small.pdf"}, ValueError),
    ],
)
def test_backtest_that_cannot_be_is_refused(runs, name, settings, error):
    with pytest.raises(
        error, match=r"did you mean|name the policy|choose|a source|allowed are|leave|end|--agent|policies"
    ):
        runs.backtest(name, settings)
