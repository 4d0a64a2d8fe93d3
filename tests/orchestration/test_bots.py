"""Bots of one home, on two markets, each traded by its own schedule."""

import datetime as dt
from dataclasses import dataclass
from functools import cache
from typing import Any

import dagster as dg
import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment
from nvtrader_pipelines.desk.bots import list_bots, start_bot
from nvtrader_pipelines.desk.halt import Scope, halt
from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.job_states import scheduled_jobs
from nvtrader_pipelines.orchestration.resources import DeskResource, StoreResource
from nvtrader_pipelines.orchestration.schedules import schedules_of
from nvtrader_pipelines.policies.baselines import EqualWeight, MinimumVariance
from nvtrader_pipelines.runs.ingestion import pin_panels
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, FEATURES, RETURNS
from tests.desk.desks import add_account
from tests.markets import INGESTED_AT, csv_file, market_tables, synthetic_bars
from tests.orchestration.desk_home import LIMITS, SECTORS, spec_of
from tests.orchestration.evenings import leave_out_pictures
from tests.runs.untrained import evaluate_sealed, planned, sealed

pytestmark = pytest.mark.slow
DAY = dt.timedelta(1)
EVERY_DAY = TradingCalendar("24/7")
TABLES = {BARS: "bars", CLEAN_BARS: "clean_bars", RETURNS: "returns", FEATURES: "features"}
MARKETS = "sources: [{kind: landing}, {kind: landing, name: coins, calendar: 24/7}]\n"
BASELINES = {"own": EqualWeight(), "coin": MinimumVariance(history=42)}
BOTS = {"stocks": "own", "coins": "coin", "third": "own", "fourth": "coin"}  # bot and account, with its experiment


@cache
def market_from_2015(calendar, n_sessions):
    """Tables of random walks."""
    return market_tables(csv_file(synthetic_bars(n_sessions, 3, calendar=calendar)), calendar=calendar.name)


def land_both(store, last: dt.date):
    """Write both markets up to a day, and pin them."""
    markets = {"landing": market_from_2015(NEW_YORK, 500), "coins": market_from_2015(EVERY_DAY, 720)}
    for table, name in TABLES.items():
        rows = [getattr(market, name).with_columns(source=pl.lit(source)) for source, market in markets.items()]
        day = pl.col("date").str.to_date() if table is BARS else pl.col("session")
        store.tables.replace(table, pl.concat(rows).filter(day <= last), {})
    pin_panels(store.tables, INGESTED_AT)


@dataclass
class TwoMarkets:
    """Home of two markets with four bots, and the instance that runs them."""

    store: Store
    instance: dg.DagsterInstance
    first: dt.date  # the Thursday at whose close all accounts open

    def evening(self, day: dt.date, bots) -> dict[str, Any]:
        """Deliver the bars of a day, and run what each bot's schedule requests after its close; outcomes by bot."""
        land_both(self.store, day)
        outcomes = {}
        for schedule in schedules_of(self.store.home):
            if schedule.name.removeprefix("bot_") not in bots:
                continue
            at = dt.datetime.combine(day, dt.time(18), tzinfo=NEW_YORK.time_zone)
            if schedule.execution_timezone == "UTC":
                at = dt.datetime.combine(day + dt.timedelta(1), dt.time(2), tzinfo=dt.UTC)
            outcomes[schedule.name.removeprefix("bot_")] = self.tick(schedule, at)
        return outcomes

    def tick(self, schedule, at: dt.datetime) -> Any:
        resources = {"store": StoreResource(root=str(self.store.home.root)), "desk": DeskResource()}
        with dg.build_schedule_context(
            instance=self.instance, scheduled_execution_time=at, resources=resources
        ) as context:
            request = schedule(context)
        if isinstance(request, dg.SkipReason):
            return str(request.skip_message)
        config = {**request.run_config, "loggers": {"console": {"config": {"level": "CRITICAL"}}}}
        job = build_defs(home=self.store.home).resolve_job_def("rebalance")
        return job.execute_in_process(instance=self.instance, run_config=config, tags=request.tags).success

    def equity(self, bot: str) -> list[float]:
        return [state.equity for state in self.store.book(bot).states()]

    def require_backtests(self) -> None:
        """Require that each active bot has the equity of its back-test, and owns each of its orders once."""
        placed = [event for event in self.store.audit.events() if event.kind == "placed"]
        assert len({event.order_id for event in placed}) == len(placed)
        for bot in ("stocks", "coins"):
            np.testing.assert_allclose(self.equity(bot)[1:], self.backtest(bot), rtol=1e-12)
            assert {event.order_id.partition(".")[0] for event in placed if event.account == bot} == {bot}

    def backtest(self, bot: str) -> list[float]:
        states = self.store.book(bot).states()
        deployment = open_deployment(self.store, states[-1].run_id, states[-1].policy)
        return account_backtest(deployment, states[0].session, states[-1].session)["equity"].to_list()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    store = Store(Home(tmp_path_factory.mktemp("bots") / "home"))
    for folder in (store.home.landing, store.home.compliance, store.home.bots):
        folder.mkdir(parents=True)
    store.home.market_file.write_text(MARKETS)
    (store.home.compliance / "limits.yaml").write_text(LIMITS)
    (store.home.compliance / "sectors.csv").write_text(SECTORS)
    thursday = dt.date(2016, 11, 10)
    land_both(store, thursday)
    for name, source, agent in (("own", "landing", MinimumVariance(history=42)), ("coin", "coins", EqualWeight())):
        spec = spec_of(name, agent, BASELINES[name])
        spec = spec.model_copy(update={"market": spec.market.model_copy(update={"source": source})})
        run = sealed(store, planned(store, spec))
        evaluate_sealed(store, run)
    for bot, experiment in BOTS.items():
        add_account(store, bot)
        (store.home.bots / f"{bot}.yaml").write_text(f"policy: {experiment}\naccount: {bot}\n")
        start_bot(store, bot, "ann", "tried", lambda: dt.datetime.now(dt.UTC))
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        leave_out_pictures(patch)
        yield TwoMarkets(store, instance, thursday)


def test_home_has_a_schedule_per_bot_on_its_calendar(home):
    schedules = {schedule.name: schedule for schedule in schedules_of(home.store.home)}
    zones = {name: schedules[f"bot_{name}"].execution_timezone for name in BOTS}
    assert zones == {"stocks": "America/New_York", "coins": "UTC", "third": "America/New_York", "fourth": "UTC"}
    assert schedules["bot_coins"].cron_schedule == schedules["eod_rebalance_24_7"].cron_schedule
    assert scheduled_jobs(home.store.home)["bot_coins"] == "rebalance"


def test_bots_of_two_markets_trade_as_their_back_tests(home):
    for day in (home.first, home.first + DAY, home.first + 2 * DAY):  # Thursday to Saturday
        outcomes = home.evening(day, ("stocks", "coins"))
        assert outcomes["coins"] is True
        assert (outcomes["stocks"] is True) == (day.isoweekday() <= 5)
    home.require_backtests()


@pytest.mark.nightly
def test_month_of_four_bots_loses_and_doubles_nothing(home):
    store, begun = home.store, home.store.book("coins").last()
    days = [(begun.session + DAY if begun else home.first) + n * DAY for n in range(31)]
    held = {}
    for n, day in enumerate(days):
        if n == 2:
            held = {bot: store.book(bot).last().shares for bot in ("third", "fourth")}
            halt(store, "ann", "news", lambda: dt.datetime.now(dt.UTC), Scope("third"))
            halt(store, "ann", "news", lambda: dt.datetime.now(dt.UTC), Scope("fourth", "reducing"))
        outcomes = home.evening(day, BOTS)
        assert outcomes["coins"] is outcomes["fourth"] is True
        assert (outcomes["stocks"] is True) == (outcomes["third"] is True) == NEW_YORK.is_session(day)
    home.require_backtests()
    assert store.book("third").last().shares == pytest.approx(held["third"], rel=1e-12)
    fourth = store.book("fourth").last().shares
    assert all(shares <= held["fourth"][name] * (1.0 + 1e-12) for name, shares in fourth.items())
    assert [bot.state for bot in list_bots(store)] == ["active", "reducing", "active", "halted"]
