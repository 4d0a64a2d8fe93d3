import datetime as dt
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from nvtrader_pipelines.orchestration import schedules
from nvtrader_pipelines.orchestration.instance import open_instance
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, YEARS
from nvtrader_pipelines.orchestration.resources import WarehouseResource
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiments
from tests.homes import small_home, write_experiment

NEW_YORK = ZoneInfo("America/New_York")
SUPERSEDED = "tiny@00000000"


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", "")  # set by opening, and set back after
        with open_instance(Home(tmp_path_factory.mktemp("home"))) as found:
            yield found


def tick(schedule, at: dt.datetime, instance=None, home=None):
    resources = {"warehouse": WarehouseResource(root=str(home.root))} if home else None
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
def test_the_market_is_ingested_after_every_session_for_its_year(day):
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
def test_a_day_without_a_session_is_skipped_with_a_reason(day, why):
    result = tick(schedules.eod_ingest, evening(*day))
    assert isinstance(result, dg.SkipReason), why
    assert f"{dt.date(*day)} is no session" in str(result.skip_message)


def test_the_running_year_is_a_partition_and_so_is_every_one_from_1990():
    keys = YEARS.get_partition_keys()
    assert keys == [str(year) for year in range(1990, dt.datetime.now(NEW_YORK).year + 1)]


@pytest.mark.parametrize("schedule", [schedules.nightly_preference_extract, schedules.weekly_retrain])
def test_without_experiments_the_schedules_over_them_say_so(schedule, tmp_path):
    with dg.DagsterInstance.local_temp(str(tmp_path)) as empty:
        (result,) = tick(schedule, dt.datetime(2024, 7, 7, 6, tzinfo=NEW_YORK), empty, small_home(tmp_path / "home"))
    assert isinstance(result, dg.SkipReason)
    assert "no experiment is registered" in str(result.skip_message)


def test_every_current_experiment_is_extracted_each_night_and_trained_each_week(instance, tmp_path):
    home = small_home(tmp_path / "home")
    write_experiment(home, "two.yaml", name="two")
    current = [spec.partition_key for spec in read_experiments(home).specs]
    instance.add_dynamic_partitions(EXPERIMENTS.name, [*current, SUPERSEDED])
    night = tick(schedules.nightly_preference_extract, dt.datetime(2024, 7, 2, 2, tzinfo=NEW_YORK), instance, home)
    week = tick(schedules.weekly_retrain, dt.datetime(2024, 7, 7, 6, tzinfo=NEW_YORK), instance, home)
    assert len(current) == 2
    assert [request.partition_key for request in night] == current
    assert [request.run_key for request in night] == [f"2024-07-02:{key}" for key in current]
    assert [request.partition_key for request in week] == current
    assert [request.run_key for request in week] == [f"2024-W27:{key}" for key in current]


def test_pairs_are_counted_every_night_and_the_warehouse_swept_every_week():
    assert tick(schedules.dpo_check, dt.datetime(2024, 7, 2, 3, tzinfo=NEW_YORK)).run_key == "2024-07-02"
    assert tick(schedules.weekly_upkeep, dt.datetime(2024, 7, 7, 5, tzinfo=NEW_YORK)).run_key == "2024-W27"
