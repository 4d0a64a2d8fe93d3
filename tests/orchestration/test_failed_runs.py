"""Failed runs and checks as states, and the sensor that sends them, on instances in memory."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from nvtrader_pipelines.orchestration import sensors
from nvtrader_pipelines.orchestration.failed_runs import MAX_AGE, run_states
from nvtrader_pipelines.storage.store import Store
from tests.homes import run_market, small_home
from tests.service.cli.sample_plans import TURNOVER, append_plan, plan

pytestmark = pytest.mark.slow


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def run(instance, job, error=None, tags=None):
    """Run a job of one asset, which fails with an error if one is given; return its run id."""

    @dg.asset(name=f"asset_of_{job}")
    def found():
        if error is not None:
            raise error

    return execute(instance, dg.Definitions([found], jobs=[dg.define_asset_job(job, [found])]), job, tags)


def execute(instance, definitions, job, tags=None):
    """Run a job to its end and return its run id."""
    return (
        definitions.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False, tags=tags).run_id
    )


def now():
    return datetime.now(UTC)


def failed(instance, at=None):
    """Failed runs by id, which the first line of the body names."""
    return {each.body.split()[2]: each for each in run_states(instance, at or now())["failed_run"]}


def tick(store, instance):
    with dg.build_sensor_context(instance=instance) as context:
        return str(sensors.notifications(context, store=store).skip_message)


def test_failed_run_names_job_step_and_error(instance):
    run_id = run(instance, "market", ValueError("the bars of AAA\nare missing"))
    (found,) = failed(instance).values()
    assert found.subject == "the run of market failed"
    assert run_id in found.body
    assert "asset_of_market: ValueError: the bars of AAA are missing" in found.body
    assert "nvtrader materialize" in found.body


def test_run_that_succeeded_since_is_no_state_and_other_jobs_stay(instance):
    other = run(instance, "judgement", ValueError())
    run(instance, "market", ValueError())
    run(instance, "market")
    assert failed(instance).keys() == {other}


def test_repeated_failure_is_one_state_for_each_reason(instance):
    keys = []
    for reason in ("no bars", "no bars", "no disk"):
        run(instance, "market", ValueError(reason))
        keys += [each.key for each in failed(instance).values()]
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]


def test_each_partition_of_a_job_is_a_state_of_its_own(instance):
    tags = [{"dagster/partition": key} for key in ("one@0", "two@0", "one@0")]
    _, two, one = (run(instance, "experiment", ValueError(), each) for each in tags)
    found = failed(instance)
    assert found.keys() == {one, two}
    assert found[two].subject == "the run of experiment of two@0 failed"


def test_run_that_will_be_retried_and_an_old_one_are_no_states(instance):
    run(instance, "market", ValueError(), {"dagster/will_retry": "true"})
    assert failed(instance) == {}
    run(instance, "judgement", ValueError())
    assert len(failed(instance)) == 1
    assert failed(instance, now() + MAX_AGE + timedelta(hours=1)) == {}


def test_run_names_blocking_checks_that_failed_but_no_warnings(instance):
    @dg.asset
    def bars(): ...

    @dg.asset(deps=[bars])
    def returns(): ...

    @dg.asset_check(asset=bars, blocking=True)
    def schema():
        return dg.AssetCheckResult(passed=False, metadata={"broken": 3})

    @dg.asset_check(asset=bars)
    def is_long():
        return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN)

    job = dg.define_asset_job("market", dg.AssetSelection.all())
    run_id = execute(instance, dg.Definitions([bars, returns], asset_checks=[schema, is_long], jobs=[job]), "market")
    found = failed(instance)[run_id]
    assert "- the check schema of bars failed: 3 rows violate it\n" in found.body
    assert "is_long" not in found.body
    assert found.body.count("\n- ") == 1


@pytest.mark.slow
def test_check_that_fails_in_a_successful_run_is_a_state_until_it_passes(tmp_path, instance):
    home = small_home(tmp_path / "home")
    bad = home.landing / "bad.csv"
    bad.write_text("symbol,date,open,high,low,close,volume\nAAA,2016-01-04,1,1,1,-1,1\n")
    keys = [dg.AssetKey(path) for path in (["bronze", "bars"], ["silver", "clean_bars"], ["silver", "quarantine"])]
    assert run_market(home, instance, asset_selection=keys).success
    states = run_states(instance, now())
    (found,) = states["failed_check"]
    assert states["failed_run"] == []
    assert found.identity == "silver/clean_bars:every_file_has_a_good_bar"
    assert "1 rows violate it" in found.body


def test_check_that_its_run_did_not_reach_is_no_state(instance):
    key = dg.AssetKey(["silver", "clean_bars"])

    @dg.asset(key=key, check_specs=[dg.AssetCheckSpec("every_file_has_a_good_bar", asset=key)])
    def clean_bars():
        raise ValueError("no bars")

    run_id = execute(instance, dg.Definitions([clean_bars], jobs=[dg.define_asset_job("market", [key])]), "market")
    states = run_states(instance, now())
    assert [each.body.split()[2] for each in states["failed_run"]] == [run_id]
    assert states["failed_check"] == []


def test_sensor_without_channel_reads_nothing(store, instance):
    assert "no channel" in tick(store, instance)
    assert not store.home.notification_record.exists()


@pytest.mark.slow
def test_sensor_sends_each_state_once_and_again_after_a_relapse(home, instance, webhook):
    run(instance, "market", ValueError("no bars"))
    append_plan(home, plan(), TURNOVER)
    summaries = [tick(Store(home), instance) for _ in range(2)]
    assert summaries == ["2 sent to default", "nothing new"]
    run(instance, "market")
    assert tick(Store(home), instance) == "nothing new"
    run(instance, "market", ValueError("no bars"))
    assert tick(Store(home), instance) == "1 sent to default"
    assert webhook.titles == [
        "[nvtrader home] a plan of the account paper waits for you (and 1 more)",
        "[nvtrader home] the run of market failed",
    ]


@pytest.mark.slow
def test_sensor_reports_refused_delivery_and_repeats_it(home, instance, webhook):
    run(instance, "market", ValueError("no bars"))
    webhook.status = 500
    assert "error=500" in tick(Store(home), instance)
    webhook.status = 200
    assert tick(Store(home), instance) == "1 sent to default"
