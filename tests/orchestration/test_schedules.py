import datetime as dt
import itertools
from zoneinfo import ZoneInfo

import dagster as dg
import exchange_calendars
import pytest
from dagster._utils.schedules import schedule_execution_time_iterator

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.orchestration import schedules
from nvtrader_pipelines.orchestration.instance import open_instance
from nvtrader_pipelines.orchestration.job_states import scheduled_jobs
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, YEARS
from nvtrader_pipelines.orchestration.resources import DeskResource, StoreResource
from nvtrader_pipelines.promotion.promote import activate
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from tests.homes import small_home, write_experiment
from tests.research.search_homes import market, search_home
from tests.runs.untrained import AT, market_home, planned, sealed

NEW_YORK = ZoneInfo("America/New_York")
SUPERSEDED = "tiny@00000000"


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", "")  # set by opening, and set back after
        with open_instance(Store(Home(tmp_path_factory.mktemp("home")))) as found:
            yield found


def tick(schedule, at: dt.datetime, instance=None, home=None):
    resources = {"store": StoreResource(root=str(home.root)), "desk": DeskResource()} if home else None
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=at, resources=resources) as context:
        result = schedule(context)
        return result if isinstance(result, dg.RunRequest | dg.SkipReason) else list(result)


def evening(*day) -> dt.datetime:
    return dt.datetime(*day, 17, 30, tzinfo=NEW_YORK)


@pytest.mark.parametrize(
    "day",
    [
        (2024, 7, 3),  # closes at 13:00
        (2024, 3, 8),  # the last session before summer time
        (2024, 3, 11),  # and the first in it
        (2024, 11, 1),
        (2024, 11, 4),
        (2026, 1, 2),  # a new year's first
    ],
)
def test_ingest_runs_after_every_session_for_its_year(day):
    request = tick(schedules.eod_ingest, evening(*day))
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == str(day[0])
    assert request.run_key == dt.date(*day).isoformat()


@pytest.mark.parametrize(
    ("day", "why"),
    [
        ((2024, 7, 4), "Independence Day"),
        ((2024, 3, 29), "Good Friday"),
        ((2025, 1, 9), "a day of mourning"),
        ((2024, 7, 6), "a Saturday"),
        ((2024, 7, 7), "a Sunday"),
    ],
)
def test_ingest_without_session_is_skipped_with_a_reason(day, why):
    result = tick(schedules.eod_ingest, evening(*day))
    assert isinstance(result, dg.SkipReason), why
    assert f"{dt.date(*day)} is not a session" in str(result.skip_message)


EVERY_DAY, WEEKDAYS, TOKYO = map(TradingCalendar, ("24/7", "24/5", "XTKS"))


@pytest.mark.parametrize(
    ("calendar", "names", "crons", "zone"),
    [
        (EVERY_DAY, "eod_ingest_24_7, eod_rebalance_24_7", "30 1 * * *, 0 2 * * *", "UTC"),
        (WEEKDAYS, "eod_ingest_24_5, eod_rebalance_24_5", "30 1 * * 2-6, 0 2 * * 2-6", "UTC"),
        (TOKYO, "eod_ingest_xtks, eod_rebalance_xtks", "0 17 * * 1-5, 30 17 * * 1-5", "Asia/Tokyo"),
    ],
)
def test_schedules_of_another_calendar_run_after_its_closes(calendar, names, crons, zone):
    both = schedules.market_schedules(calendar)
    assert ", ".join(schedule.name for schedule in both) == names
    assert ", ".join(schedule.cron_schedule for schedule in both) == crons
    assert {schedule.execution_timezone for schedule in both} == {zone}


def test_session_of_a_market_that_never_closes_is_ingested_after_midnight():
    ingest, _ = schedules.market_schedules(EVERY_DAY)
    request = tick(ingest, dt.datetime(2027, 1, 1, 1, 30, tzinfo=dt.UTC))
    assert (request.run_key, request.partition_key) == ("2026-12-31", "2026")
    (sunday,) = {tick(ingest, dt.datetime(2026, 11, 30, hour, tzinfo=dt.UTC)).run_key for hour in (2, 23)}
    assert sunday == "2026-11-29"


@pytest.mark.slow
def test_rebalance_after_midnight_is_of_the_session_before():
    _, rebalance = schedules.market_schedules(TradingCalendar("XEUR"))  # closes at 22:00
    assert (rebalance.cron_schedule, rebalance.execution_timezone) == ("0 0 * * 2-6", "Europe/Berlin")
    saturday = dt.datetime(2026, 11, 28, tzinfo=ZoneInfo("Europe/Berlin"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "skip_reason", lambda *_: None)
        assert tick(rebalance, saturday, home=Home("/nowhere")).run_key == "2026-11-27"


@pytest.mark.slow
def test_home_has_two_schedules_for_each_calendar_of_its_markets(home):
    home.market_file.write_text(
        "sources: [{kind: landing}, {kind: landing, name: coins, calendar: 24/7}, {kind: landing, name: tokyo, "
        "calendar: XTKS}, {kind: landing, name: more_coins, calendar: 24/7}]\n"
    )
    found = {schedule.name: schedule.job_name for schedule in schedules.schedules_of(home)}
    assert found == scheduled_jobs(home)
    assert list(found)[-4:] == ["eod_ingest_24_7", "eod_rebalance_24_7", "eod_ingest_xtks", "eod_rebalance_xtks"]
    home.market_file.write_text("sources: 1\n")  # as the ingest will say
    assert schedules.schedules_of(home) == schedules.SCHEDULES


@pytest.mark.slow
def test_rebalance_waits_for_the_schedule_of_the_traded_market(traded):
    _, rebalance = schedules.market_schedules(EVERY_DAY)
    result = tick(rebalance, dt.datetime(2016, 11, 26, 2, tzinfo=dt.UTC), home=traded)
    assert isinstance(result, dg.SkipReason)
    assert "trades on XNYS" in str(result.skip_message)


@pytest.fixture
def trading_home(tmp_path, monkeypatch):
    """A home whose account can be traded on every session."""
    monkeypatch.setattr(schedules, "skip_reason", lambda *_: None)
    return Home(tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Series.values returning")  # of exchange_calendars
@pytest.mark.parametrize(
    ("day", "close"),
    [
        ((2026, 11, 25), "16:00"),
        ((2026, 11, 27), "13:00"),  # the day after Thanksgiving
        ((2026, 12, 24), "13:00"),
        ((2027, 3, 12), "16:00"),  # the last session before summer time
        ((2027, 3, 15), "16:00"),  # and the first in it
        ((2026, 11, 2), "16:00"),  # the first after it
    ],
)
def test_rebalance_runs_after_close_and_ingest_of_every_session(day, close, trading_home):
    (at,) = ticks(schedules.eod_rebalance, day)
    (ingested,) = ticks(schedules.eod_ingest, day)
    closes = exchange_calendars.get_calendar("XNYS", start="2026-01-01", end="2027-12-31").session_close(
        str(dt.date(*day))
    )
    assert closes.astimezone(NEW_YORK).strftime("%H:%M") == close
    assert closes < ingested < at
    assert at.astimezone(NEW_YORK).hour == 18
    request = tick(schedules.eod_rebalance, at, home=trading_home)
    assert isinstance(request, dg.RunRequest)
    assert request.run_key == request.tags["nvtrader/session"] == dt.date(*day).isoformat()


def ticks(schedule, day) -> list[dt.datetime]:
    """When the schedule fires on a day, in New York."""
    midnight = dt.datetime(*day, tzinfo=NEW_YORK)
    times = schedule_execution_time_iterator(midnight.timestamp(), schedule.cron_schedule, schedule.execution_timezone)
    return list(itertools.takewhile(lambda at: at.astimezone(NEW_YORK).date() == midnight.date(), times))


@pytest.mark.parametrize("day", [(2026, 11, 26), (2026, 12, 25), (2026, 11, 28), (2026, 4, 3)])
def test_rebalance_on_holiday_or_weekend_is_skipped(day, trading_home):
    result = tick(schedules.eod_rebalance, dt.datetime(*day, 18, tzinfo=NEW_YORK), home=trading_home)
    assert isinstance(result, dg.SkipReason)
    assert f"{dt.date(*day)} is not a session" in str(result.skip_message)


@pytest.fixture(scope="module")
def traded(tmp_path_factory):
    """A home in which a policy is active, on a market that ends on 2016-11-25."""
    store = market_home(tmp_path_factory.mktemp("traded") / "home")
    run = sealed(store, planned(store))
    activate(store, PolicyRef(run.run_id, run.experiment), "ann", "", AT)
    return store.home


def rebalanced(home, *day):
    """What the schedule says at six in the evening."""
    return tick(schedules.eod_rebalance, dt.datetime(*day, 18, tzinfo=NEW_YORK), home=home)


@pytest.fixture
def at_a_broker(traded):
    """The account of the schedule is one at a broker."""
    traded.accounts.mkdir(parents=True, exist_ok=True)
    path = traded.accounts / "paper.yaml"
    path.write_text("kind: alpaca\n")
    yield traded
    path.unlink()


def test_rebalance_of_simulated_account_after_end_of_market_is_skipped(traded):
    result = rebalanced(traded, 2016, 11, 29)  # a Tuesday
    assert isinstance(result, dg.SkipReason)
    said = str(result.skip_message)
    assert (
        "needs the bars of 2016-11-28, the session before 2016-11-29, but its market landing ends on 2016-11-25" in said
    )
    assert "deliver the bars and run the job `market`" in said


def test_rebalance_is_requested_when_only_todays_bars_are_missing(traded):
    request = rebalanced(traded, 2016, 11, 28)  # the Monday after the market's last Friday
    assert isinstance(request, dg.RunRequest)
    assert request.tags["nvtrader/session"] == "2016-11-28"


@pytest.mark.slow
def test_rebalance_of_account_at_broker_is_never_skipped(at_a_broker, tmp_path):
    assert isinstance(rebalanced(at_a_broker, 2026, 11, 27), dg.RunRequest)  # which fails in red: the bars are stale
    without = Home(tmp_path)
    without.accounts.mkdir(parents=True)
    (without.accounts / "paper.yaml").write_text("kind: alpaca\n")
    assert isinstance(rebalanced(without, 2026, 11, 27), dg.RunRequest)  # and so without an active policy


@pytest.mark.slow
def test_rebalance_needs_an_active_policy_that_can_be_read(tmp_path):
    home = Home(tmp_path)
    result = rebalanced(home, 2026, 11, 27)
    assert isinstance(result, dg.SkipReason)
    assert "needs an active policy to be rebalanced, but none was ever activated" in str(result.skip_message)
    activation = AuditEvent(event_id=event_id("promoted"), kind="promoted", at=AT, by="ann", policy="small", run_id="1")
    Store(home).audit.append([activation])
    with pytest.raises(StorageError):
        rebalanced(home, 2026, 11, 27)


def test_years_from_1990_to_the_current_are_partitions():
    keys = YEARS.get_partition_keys()
    assert keys == [str(year) for year in range(1990, dt.datetime.now(NEW_YORK).year + 1)]


@pytest.mark.slow
def test_training_without_experiments_is_skipped(tmp_path):
    home, sunday = small_home(tmp_path / "home"), dt.datetime(2024, 7, 7, 6, tzinfo=NEW_YORK)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as empty:
        (result,) = tick(schedules.weekly_retrain, sunday, empty, home)
    assert isinstance(result, dg.SkipReason)
    assert "no experiment is registered" in str(result.skip_message)


@pytest.mark.slow
def test_current_experiments_are_extracted_nightly_and_trained_weekly(instance, tmp_path):
    home = small_home(tmp_path / "home")
    write_experiment(home, "two.yaml", name="two")
    current = [spec.partition_key for spec in read_experiments(home).specs]
    instance.add_dynamic_partitions(EXPERIMENTS.name, [*current, SUPERSEDED])
    night = tick(schedules.nightly_preference_extract, dt.datetime(2024, 7, 2, 2, tzinfo=NEW_YORK), instance, home)
    week = tick(schedules.weekly_retrain, dt.datetime(2024, 7, 7, 6, tzinfo=NEW_YORK), instance, home)
    assert len(current) == 2
    assert [request.partition_key for request in night] == [None, *current]
    assert [request.run_key for request in night] == ["2024-07-02", *(f"2024-07-02:{key}" for key in current)]
    assets = [{key.path[-1] for key in request.asset_selection} for request in night]
    assert ("decisions" in assets[0], assets[1:]) == (True, [{"preference_pairs"}] * 2)
    assert [request.partition_key for request in week] == current
    assert [request.run_key for request in week] == [f"2024-W27:{key}" for key in current]


@pytest.mark.slow
def test_search_of_the_week_is_on_a_market_that_exists(tmp_path):
    saturday = dt.datetime(2024, 7, 6, 6, tzinfo=NEW_YORK)
    empty = tick(schedules.weekly_autoresearch, saturday, home=small_home(tmp_path / "empty"))
    assert isinstance(empty, dg.SkipReason)
    home = search_home(tmp_path / "landed", market())
    request = tick(schedules.weekly_autoresearch, saturday, home=home)
    config = request.run_config["ops"]["autoresearch_session"]["config"]
    assert (request.run_key, config) == ("2024-W27", {"seed": 202427, "source": "landing"})


@pytest.mark.slow
def test_policies_that_dpo_can_tune_are_tuned_nightly(tmp_path):
    night = dt.datetime(2024, 7, 2, 3, tzinfo=NEW_YORK)
    home = small_home(tmp_path / "home")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as alone:
        (skipped,) = tick(schedules.dpo_check, night, alone, home)
        assert "dpo could tune" in str(skipped.skip_message)
        write_experiment(home, "rule.yaml", name="rule", agent={"kind": "equal_weight"}, seeds=[0])
        specs = read_experiments(home).specs
        for spec in specs:
            Store(home).ledger.register(spec)
        alone.add_dynamic_partitions(EXPERIMENTS.name, [spec.partition_key for spec in specs])
        requests = tick(schedules.dpo_check, night, alone, home)
    tunable = [spec.partition_key for spec in specs if spec.name != "rule"]
    assert [request.partition_key for request in requests] == tunable
    assert [request.run_key for request in requests] == [f"2024-07-02:{key}" for key in tunable]


def test_warehouse_is_tidied_weekly():
    assert tick(schedules.weekly_upkeep, dt.datetime(2024, 7, 7, 5, tzinfo=NEW_YORK)).run_key == "2024-W27"
