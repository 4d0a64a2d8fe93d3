import os
import shutil

import dagster as dg
import polars as pl
import pytest
import yaml

from nvtrader_pipelines.orchestration import sensors
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.jobs import CONTEST, RETRAINED_BECAUSE
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, RANGE_END, RANGE_START, remove_unused_partitions
from nvtrader_pipelines.orchestration.resources import DeskResource, StoreResource
from nvtrader_pipelines.orchestration.table_checks import PARTITION_TAG
from nvtrader_pipelines.research.automatic_training import training_message
from nvtrader_pipelines.runs.input_digests import contest_digest
from nvtrader_pipelines.runs.registration import register_experiments
from nvtrader_pipelines.storage import specs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, RUNS
from tests.desk.desks import days_of, evening, judged_home, make_active, settle_returns, trade, write_index
from tests.homes import HOLDOUT, KEY, SPEC, SWEEP, SWEPT, copy_home, run_job, small_home, step_errors, write_experiment
from tests.runs.small_runs import N_SESSIONS, land
from tests.runs.untrained import EXPERIMENT as UNTRAINED
from tests.runs.untrained import KEY as UNTRAINED_KEY
from tests.storage.ledger.run_rows import RUN_ID, run_row

pytestmark = pytest.mark.slow


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture(scope="module")
def landed(tmp_path_factory):
    """Home with a market; tests copy it."""
    home = small_home(tmp_path_factory.mktemp("landed") / "home")
    land(Store(home), n_sessions=600)
    return home


@pytest.fixture
def home(tmp_path, request):
    """Home whose market is not built, or has a panel."""
    if "with_panel" in request.fixturenames:
        return copy_home(request.getfixturevalue("landed"), tmp_path / "home")
    return small_home(tmp_path / "home")


def tick(sensor, home, instance, cursor=None):
    """One evaluation."""
    with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
        return sensor(context, store=Store(home))


def register(home, instance, result) -> None:
    """What the daemon does with a tick's partitions."""
    for request in result.dynamic_partitions_requests:
        instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)


def test_landed_file_requests_one_run_of_the_whole_history(home, instance):
    result = tick(sensors.landed_file, home, instance)
    (request,) = result.run_requests
    assert request.tags[RANGE_START] == "1990"
    assert int(request.tags[RANGE_END]) >= 2026
    assert request.run_key == result.cursor


@pytest.mark.usefixtures("with_panel")
def test_odd_files_do_not_stop_ticks(home, instance):
    os.mkfifo(home.landing / "pipe.csv")
    os.mkfifo(home.experiments / "pipe.yaml")
    for folder, text in ((home.landing, "x"), (home.experiments, "name: k\n")):
        (folder / os.fsdecode(b"K\xe9.yaml")).write_text(text)
    assert len(tick(sensors.landed_file, home, instance).run_requests) == 1
    (request,) = tick(sensors.experiment_file, home, instance).run_requests
    assert request.partition_key == KEY


def test_unchanged_landing_zone_is_skipped(home, instance):
    first = tick(sensors.landed_file, home, instance)
    again = tick(sensors.landed_file, home, instance, first.cursor)
    assert isinstance(again, dg.SkipReason)
    assert "nothing new" in str(again.skip_message)


def test_empty_landing_zone_is_skipped(home, instance):
    (home.landing / "prices.csv").unlink()
    assert isinstance(tick(sensors.landed_file, home, instance), dg.SkipReason)


def test_file_still_being_written_is_ignored(home, instance):
    first = tick(sensors.landed_file, home, instance)
    (home.landing / "more.csv.part").write_text("half")
    (home.landing / ".hidden.csv").write_text("half")
    assert isinstance(tick(sensors.landed_file, home, instance, first.cursor), dg.SkipReason)


@pytest.mark.parametrize("name", ["more.csv", "prices.csv", "vendor/deep/more.csv"])
def test_new_or_changed_file_requests_a_run_under_a_new_key(home, instance, name):
    first = tick(sensors.landed_file, home, instance)
    path = home.landing / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("symbol,date,close\n")
    second = tick(sensors.landed_file, home, instance, first.cursor)
    assert len(second.run_requests) == 1
    assert second.run_requests[0].run_key != first.run_requests[0].run_key


def test_touched_file_requests_no_run(home, instance):
    first = tick(sensors.landed_file, home, instance)
    os.utime(home.landing / "prices.csv", (1e9, 1e9))
    assert isinstance(tick(sensors.landed_file, home, instance, first.cursor), dg.SkipReason)


def test_run_requested_for_a_landed_file_builds_the_market(home, instance):
    (request,) = tick(sensors.landed_file, home, instance).run_requests
    finished = run_job(home, "market", instance, tags=request.tags)
    assert finished.success, step_errors(finished)
    assert len(Store(home).tables.read(CLEAN_BARS)) == 3 * 756


@pytest.fixture
def with_panel(home):
    """The home has a panel."""


def test_new_experiment_without_market_is_skipped(home, instance):
    result = tick(sensors.experiment_file, home, instance)
    assert isinstance(result, dg.SkipReason)
    assert "no panel yet" in str(result.skip_message)
    assert not instance.get_dynamic_partitions(EXPERIMENTS.name)


@pytest.mark.usefixtures("with_panel")
def test_new_experiment_becomes_one_partition_and_one_run(home, instance):
    result = tick(sensors.experiment_file, home, instance)
    (request,) = result.run_requests
    assert request.partition_key == request.run_key == KEY
    register(home, instance, result)
    assert instance.get_dynamic_partitions(EXPERIMENTS.name) == [KEY]
    assert Store(home).ledger.read(KEY).name == "tiny"
    assert isinstance(tick(sensors.experiment_file, home, instance), dg.SkipReason)


@pytest.mark.usefixtures("with_panel")
def test_draft_requests_no_run_until_it_is_edited_or_run_by_hand(home, instance):
    store, name = Store(home), specs.write_experiment(home, "mine", "tiny").stem
    register(home, instance, tick(sensors.experiment_file, home, instance))
    skipped = tick(sensors.experiment_file, home, instance)
    assert isinstance(skipped, dg.SkipReason)
    assert "mine is skipped: a draft" in str(skipped.skip_message)
    assert store.ledger.versions()["name"].to_list() == ["tiny"]
    assert training_message(store).splitlines()[0].endswith("without a run: tiny")
    assert "mine is not trained: a draft" in training_message(store)
    draft = specs.read_experiment(home.experiments / "mine.yaml")
    register_experiments(store, [draft])  # as a run by hand does
    (request,) = tick(sensors.experiment_file, home, instance).run_requests
    assert request.partition_key == draft.partition_key
    (home.experiments / "mine.yaml").write_text(f"name: {name}\nextends: tiny.yaml\nseeds: [3, 4, 5]\n")
    (request,) = tick(sensors.experiment_file, home, instance).run_requests
    assert request.partition_key not in {KEY, draft.partition_key}


@pytest.mark.usefixtures("with_panel")
def test_changed_experiment_adds_a_partition_and_keeps_the_old(home, instance):
    register(home, instance, tick(sensors.experiment_file, home, instance))
    write_experiment(home, seeds=[3, 4, 5])
    result = tick(sensors.experiment_file, home, instance)
    (request,) = result.run_requests
    assert request.partition_key.startswith("tiny@")
    assert request.partition_key != KEY
    register(home, instance, result)
    assert set(instance.get_dynamic_partitions(EXPERIMENTS.name)) == {KEY, request.partition_key}
    assert Store(home).ledger.read(KEY).seeds == (0, 1, 2)


@pytest.mark.usefixtures("with_panel")
def test_reformatted_experiment_file_is_not_a_new_experiment(home, instance):
    register(home, instance, tick(sensors.experiment_file, home, instance))
    path = home.experiments / "tiny.yaml"
    path.write_text("# a remark\n" + path.read_text())
    assert isinstance(tick(sensors.experiment_file, home, instance), dg.SkipReason)


@pytest.mark.usefixtures("with_panel")
def test_experiment_that_cannot_be_planned_is_skipped_with_its_problem(home, instance):
    register(home, instance, tick(sensors.experiment_file, home, instance))
    write_experiment(home, "typo.yaml", name="typo", market={"source": "landing", "symbols": ["NOPE"]})
    skipped = tick(sensors.experiment_file, home, instance)
    assert "typo is skipped: the market has no bars of NOPE" in str(skipped.skip_message)
    assert Store(home).ledger.versions()["name"].to_list() == ["tiny"]


@pytest.mark.usefixtures("with_panel")
@pytest.mark.parametrize(("n_judged", "is_requested"), [(2, False), (3, True)])
def test_training_of_days_is_requested_only_if_all_policies_are_judged(n_judged, is_requested, home, instance):
    agent, folder = {**SWEEP["agent"], "total_timesteps": 10**12}, home.research_policies / "tiny"
    write_experiment(home, agent=agent, splitter=HOLDOUT)
    folder.mkdir(parents=True)
    shutil.copy(home.experiments / "tiny.yaml", folder / "experiment.yaml")
    for seed in range(n_judged):
        (folder / f"fold-0-seed-{seed}.zip").touch()
    assert isinstance(tick(sensors.experiment_file, home, instance), dg.SensorResult) == is_requested


@pytest.mark.usefixtures("with_panel")
def test_archived_experiment_requests_no_run(home, instance):
    Store(home).ledger.archive(["tiny"])
    assert isinstance(tick(sensors.experiment_file, home, instance), dg.SkipReason)


def test_partitions_that_never_ran_are_removed_unless_of_a_file(home, instance):
    ledger = Store(home).ledger
    ledger.begin(run_row(ledger))
    ran, typo = ledger.run(RUN_ID).partition_key, "typo@00000000"
    instance.add_dynamic_partitions(EXPERIMENTS.name, [KEY, ran, typo])
    assert remove_unused_partitions(instance, ledger, [SPEC]) == [typo]
    assert set(instance.get_dynamic_partitions(EXPERIMENTS.name)) == {KEY, ran}


@pytest.mark.usefixtures("with_panel")
def test_ablation_becomes_one_partition_and_one_run_per_value(home, instance):
    (home.experiments / "tiny.yaml").unlink()
    write_experiment(home, "sweep.yaml", **SWEEP)
    result = tick(sensors.experiment_file, home, instance)
    assert [request.partition_key for request in result.run_requests] == SWEPT
    assert len({request.run_key for request in result.run_requests}) == len(SWEPT)
    register(home, instance, result)
    assert instance.get_dynamic_partitions(EXPERIMENTS.name) == SWEPT
    versions = Store(home).ledger.versions()
    (parent,) = versions.filter(name="sweep")["spec_hash"]
    assert versions.filter(name=SWEPT[0].partition("@")[0])["parent_hash"].to_list() == [parent]
    assert isinstance(tick(sensors.experiment_file, home, instance), dg.SkipReason)


@pytest.mark.usefixtures("with_panel")
def test_new_value_of_an_ablation_requests_only_its_own_run(home, instance):
    write_experiment(home, "sweep.yaml", **SWEEP)
    register(home, instance, tick(sensors.experiment_file, home, instance))
    write_experiment(home, "sweep.yaml", **{**SWEEP, "design": {**SWEEP["design"], "values": [0, 20, 50]}})
    (request,) = tick(sensors.experiment_file, home, instance).run_requests
    assert request.partition_key.startswith("sweep-turnover-cost-bps-50@")


@pytest.mark.usefixtures("with_panel")
@pytest.mark.parametrize(
    "text",
    [
        "name: [",
        "name: x\nenviroment: {}\n",
        "é".encode("latin-1"),
        *(
            pytest.param(text, marks=pytest.mark.nightly)
            for text in ("name: Bad Name\n", "", "name: a\nname: b\n", "\x00")
        ),
    ],
)
def test_invalid_experiment_file_is_skipped_without_blocking_others(home, instance, text, capsys):
    (home.experiments / "broken.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    result = tick(sensors.experiment_file, home, instance)
    assert [request.partition_key for request in result.run_requests] == [KEY]
    assert "broken.yaml is skipped" in capsys.readouterr().err


def judgements(home, instance) -> list[dg.RunRequest]:
    """What the sensor asks for."""
    resources = {"store": StoreResource(root=str(home.root))}
    with dg.build_sensor_context(instance=instance, resources=resources) as context:
        return list(sensors.contest_changed.evaluate_tick(context).run_requests or ())


@pytest.fixture
def with_run(home):
    """The home with the row of a completed run."""
    store = Store(home)
    row = dict.fromkeys(RUNS.schema.names()) | {"run_id": "a" * 16, "kind": "walk_forward", "spec_hash": "b"}
    store.tables.replace(RUNS, pl.DataFrame([row], schema=RUNS.schema), {})


def test_home_without_a_run_is_not_judged(home, instance):
    assert judgements(home, instance) == []


@pytest.mark.usefixtures("with_run")
def test_new_run_requests_one_judgement_of_the_current_contest(home, instance):
    (first,) = judgements(home, instance)
    assert first.run_key == first.tags[CONTEST] == contest_digest(Store(home))
    home.contests.write_text("calm: {first: 2015-01-01}")
    (second,) = judgements(home, instance)
    assert second.run_key != first.run_key


@pytest.mark.usefixtures("with_run")
def test_contest_judged_by_command_line_is_skipped(home, instance):
    @dg.job(name="judgement", tags={CONTEST: contest_digest(Store(home))})
    def judged() -> None: ...

    assert judgements(home, instance)
    assert judged.execute_in_process(instance=instance).success
    assert judgements(home, instance) == []


@pytest.mark.usefixtures("with_run")
def test_judgement_waits_for_the_last_run_of_a_sweep(home, instance):
    @dg.job(name="experiment")
    def experiment() -> None: ...

    run = instance.create_run_for_job(experiment, status=dg.DagsterRunStatus.STARTED)
    assert judgements(home, instance) == []
    instance.report_run_canceled(run)
    assert len(judgements(home, instance)) == 1


@pytest.fixture(scope="module")
def traded(tmp_path_factory):
    """Home whose account trades the active policy of its one experiment."""
    store, run = judged_home(tmp_path_factory.mktemp("traded") / "home")
    store.home.experiments.mkdir()
    (store.home.experiments / "small.yaml").write_text(yaml.safe_dump(UNTRAINED.model_dump(mode="json")))
    make_active(store, run)
    trade(store, at=evening(store))
    write_index(store, [1.0] * 2)
    return store.home


@pytest.fixture
def retrainable(traded, tmp_path, instance):
    """Copy of the home, whose experiment is a partition."""
    instance.add_dynamic_partitions(EXPERIMENTS.name, [UNTRAINED_KEY])
    return Store(copy_home(traded, tmp_path / "retrainable"))


def retrainings(sensor, store, instance) -> list[dg.RunRequest]:
    """Requests of one tick, each of which the daemon runs to its end."""
    resources = {"store": StoreResource(root=str(store.home.root)), "desk": DeskResource()}
    defs = build_defs(home=store.home)
    with (
        dg.partition_loading_context(dynamic_partitions_store=instance),
        dg.build_sensor_context(
            instance=instance, resources=resources, sensor_name=sensor.name, definitions=defs
        ) as context,
    ):
        requests = list(sensor.evaluate_tick(context).run_requests or ())

    @dg.job(name="experiment")
    def experiment() -> None: ...

    for request in requests:
        instance.create_run_for_job(experiment, tags=dict(request.tags), status=dg.DagsterRunStatus.SUCCESS)
    return requests


@pytest.fixture(scope="module")
def grown(traded, tmp_path_factory):
    """Copy of the home with sessions after the tests; tests copy it."""
    home = copy_home(traded, tmp_path_factory.mktemp("grown") / "home")
    grow_market(Store(home))
    return home


def grow_market(store) -> None:
    """Deliver 21 sessions after the tests."""
    land(store, N_SESSIONS + 21)


def lose_account(store) -> None:
    """Make the account lose what its back-test never lost."""
    settle_returns(store, -0.01, 21)


def begin_bear_market(store) -> None:
    """Make the market fall by a fifth after the tests."""
    land(store, N_SESSIONS + 1)
    write_index(store, [1.0, 0.8])


CAUSES = {
    sensors.market_grew: grow_market,
    sensors.account_drifted: lose_account,
    sensors.regime_changed: begin_bear_market,
}


@pytest.mark.parametrize(("sensor", "cause"), CAUSES.items(), ids=[sensor.name for sensor in CAUSES])
def test_cause_of_retraining_requests_one_run_with_its_reason(sensor, cause, retrainable, instance):
    assert retrainings(sensor, retrainable, instance) == []
    cause(retrainable)
    (request,) = retrainings(sensor, retrainable, instance)
    assert request.run_key == f"{sensor.name}:{UNTRAINED_KEY}:{days_of(retrainable)[-1]}"
    assert request.partition_key == UNTRAINED_KEY
    assert request.tags[RETRAINED_BECAUSE]
    assert retrainings(sensor, retrainable, instance) == []


def test_experiment_is_retrained_once_in_five_sessions_by_all_sensors(retrainable, instance):
    lose_account(retrainable)
    requested = []
    for n_new in (21, 25, 26):
        land(retrainable, N_SESSIONS + n_new)
        write_index(retrainable, [1.0] * 27 + [0.8])
        requested += [(n_new, sensor.name) for sensor in CAUSES for _ in retrainings(sensor, retrainable, instance)]
    assert requested == [(21, "market_grew"), (26, "market_grew")]


@pytest.mark.parametrize(
    ("key", "status", "n_requests"),
    [
        pytest.param(UNTRAINED_KEY, dg.DagsterRunStatus.NOT_STARTED, 0, marks=pytest.mark.nightly),
        (UNTRAINED_KEY, dg.DagsterRunStatus.STARTED, 0),
        (UNTRAINED_KEY, dg.DagsterRunStatus.FAILURE, 1),
        (KEY, dg.DagsterRunStatus.STARTED, 1),
    ],
)
def test_experiment_with_an_unfinished_run_is_not_retrained(key, status, n_requests, grown, tmp_path, instance):
    @dg.job(name="experiment")
    def experiment() -> None: ...

    retrainable = Store(copy_home(grown, tmp_path / "home"))
    instance.add_dynamic_partitions(EXPERIMENTS.name, [UNTRAINED_KEY])
    instance.create_run_for_job(experiment, tags={PARTITION_TAG: key}, status=status)
    assert len(retrainings(sensors.market_grew, retrainable, instance)) == n_requests


@pytest.mark.parametrize("sensor", CAUSES, ids=lambda each: each.name)
def test_archived_experiment_is_not_retrained(sensor, retrainable, instance):
    CAUSES[sensor](retrainable)
    retrainable.ledger.archive([UNTRAINED.name])
    assert retrainings(sensor, retrainable, instance) == []


def ended(instance, how=None) -> tuple[dg.DagsterRun, dg.DagsterEvent]:
    """A run of Dagster that has ended, well or with an error, and the event that says so."""

    @dg.op
    def work() -> None:
        if how is not None:
            raise how

    @dg.job
    def any_job() -> None:
        work()

    result = any_job.execute_in_process(instance=instance, raise_on_error=False)
    (event,) = result.filter_events(
        lambda each: each.event_type in (dg.DagsterEventType.RUN_SUCCESS, dg.DagsterEventType.RUN_FAILURE)
    )
    return result.dagster_run, event


def told(sensor, home, instance, run, event) -> None:
    """The sensor hears of a run's end."""
    context = dg.build_run_status_sensor_context(
        sensor_name=sensor.name, dagster_instance=instance, dagster_run=run, dagster_event=event
    )
    of_failure = sensor is sensors.close_failed
    sensor(context.for_run_failure() if of_failure else context, store=Store(home))


def test_successful_run_publishes_the_views(home, instance):
    told(sensors.publish_views, home, instance, *ended(instance))
    assert home.duckdb_file.exists()


@pytest.mark.parametrize("sensor", [sensors.close_failed, sensors.close_canceled], ids=lambda each: each.name)
def test_failed_or_canceled_run_is_closed_in_the_ledger(home, instance, sensor):
    ledger = Store(home).ledger
    run, event = ended(instance, MemoryError("no memory left"))
    ledger.begin(run_row(ledger, dagster_run_id=run.run_id))
    ledger.begin(run_row(ledger, run_id="another", dagster_run_id="under way"))
    told(sensor, home, instance, run, event)
    closed = ledger.run(RUN_ID)
    assert (closed.status, closed.message) == ("interrupted", f"the Dagster run {run.run_id} ended before it did")
    assert closed.finished_at is not None
    assert ledger.run("another").status == "running"


def test_closed_run_keeps_its_reason(home, instance):
    ledger = Store(home).ledger
    run, event = ended(instance, ValueError("the market is gone"))
    ledger.begin(run_row(ledger, dagster_run_id=run.run_id))
    ledger.finish(RUN_ID, "failed", message="the market is gone")
    told(sensors.close_failed, home, instance, run, event)
    assert ledger.run(RUN_ID).message == "the market is gone"


def test_restarted_run_stays_open_when_its_first_launcher_ends(home, instance):
    ledger = Store(home).ledger
    run, event = ended(instance, MemoryError())
    ledger.begin(run_row(ledger, dagster_run_id=run.run_id))
    ledger.begin(run_row(ledger, dagster_run_id="the retry", task_id="the retry"))
    told(sensors.close_failed, home, instance, run, event)
    assert ledger.run(RUN_ID).status == "running"
