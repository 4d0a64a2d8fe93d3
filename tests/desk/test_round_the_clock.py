"""An account of a market that never closes."""

import datetime as dt
from itertools import pairwise

import numpy as np
import pytest

from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment
from nvtrader_pipelines.feedback.retraining import check_account_drift, check_market_growth, check_regime_change
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.panels import read_panel
from nvtrader_pipelines.storage.store import Store
from tests.desk.desks import DESKS, make_active, states, trade, write_index
from tests.runs.small_runs import land
from tests.runs.untrained import evaluate_sealed, planned, sealed

pytestmark = pytest.mark.slow
EVERY_DAY = TradingCalendar("24/7")
DAY = dt.timedelta(days=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    DESKS.clear()
    home = Home(tmp_path_factory.mktemp("coins") / "home")
    home.landing.mkdir(parents=True)
    home.market_file.write_text("sources: [{kind: landing, calendar: 24/7}]\n")
    store = Store(home)
    land(store, calendar=EVERY_DAY)
    run = sealed(store, planned(store))
    evaluate_sealed(store, run)
    make_active(store, run, at=dt.datetime(2016, 1, 1, tzinfo=dt.UTC))
    yield store
    DESKS.clear()


def midnight(day):
    return dt.datetime.combine(day, dt.time(), tzinfo=dt.UTC)


def test_account_trades_the_weekend_as_its_back_test(store):
    days = [day.item() for day in read_panel(store.tables, "landing").sessions]
    assert {after - before for before, after in pairwise(days)} == {DAY}
    saturday = next(day for day in days[-10:] if day.isoweekday() == 6)
    now = midnight(saturday + DAY) + dt.timedelta(minutes=30)
    trade(store, saturday - 30 * DAY, None, at=now)
    assert [state.session for state in states(store)][-2:] == [saturday - DAY, saturday]
    trade(store, at=now + DAY)
    assert states(store)[-1].session == saturday + DAY
    traded = states(store)
    assert {state.session.isoweekday() for state in traded if state.turnover > 0.0} & {6, 7}
    deployment = open_deployment(store, traded[-1].run_id, traded[-1].policy)
    expected = account_backtest(deployment, traded[0].session, saturday + DAY)
    np.testing.assert_allclose([state.equity for state in traded[1:]], expected["equity"], rtol=1e-12)


def test_retraining_of_every_check_counts_sessions_of_the_market(store):
    days = [day.item() for day in read_panel(store.tables, "landing").sessions]
    write_index(store, [1.0] * len(days))
    (growth,) = check_market_growth(store, [read_active(store).partition_key])
    checks = growth, check_regime_change(store, "paper"), check_account_drift(store, "paper")
    assert [check.recent_sessions for check in checks] == [days[-5:]] * 3
