import pytest

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.runs.interruptions import RunHalted
from nvtrader_pipelines.runs.lifecycle import record_run
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.ledger import RunRow
from nvtrader_pipelines.storage.store import Store
from tests.markets import synthetic_panel
from tests.storage.table_rows import AT

PANEL = synthetic_panel(400)
PLAN = RunPlan(ExperimentSpec(name="a"), PANEL, panel_digest(PANEL), (Fold(0, 0, 199, 206, 399),))
RUN = PLAN.run_id
ROW = RunRow.of(PLAN, "task", AT, dagster_run_id="dagster")


@pytest.fixture
def store(home):
    found = Store(home)
    found.ledger.register(PLAN.spec)
    return found


@pytest.fixture
def ledger(store):
    return store.ledger


def step(stage, **more):
    return Progress(task_id="task", run_id=RUN, stage=stage, message=stage, timestamp=AT, **more)


def steps(*told, error=None):
    yield from told
    if error:
        raise error
    return "result"


def noted(ledger):
    return ledger.events(RUN)["stage"].to_list()


def test_successful_run_is_done_with_metrics_of_its_last_step(store, ledger):
    told = [step("start"), step("done", metrics={"all/sharpe": 1.0})]
    stream = record_run(store, ROW, steps(*told))
    assert ledger.runs().is_empty()  # nothing happens before it is asked for
    assert next(stream) == told[0]
    assert ledger.run(RUN).status == "running"
    assert list(stream) == told[1:]
    run = ledger.run(RUN)
    assert (run.status, run.kind, run.metrics, run.dagster_run_id) == (
        "done",
        "walk_forward",
        {"all/sharpe": 1.0},
        "dagster",
    )
    assert noted(ledger) == ["start", "done"]


def test_record_run_returns_the_result_of_the_steps(store):
    stream = record_run(store, ROW, steps())
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == "result"


def test_record_run_without_closing_leaves_the_run_open(store, ledger):
    list(record_run(store, ROW, steps(step("done")), closes=False))
    assert ledger.run(RUN).status == "running"


def test_metrics_of_an_earlier_execution_are_kept(store, ledger):
    for metrics in ({"all/sharpe": 1.0}, {}):
        list(record_run(store, ROW, steps(step("done", metrics=metrics))))
    assert (ledger.run(RUN).metrics, ledger.run(RUN).attempts) == ({"all/sharpe": 1.0}, 2)


def test_failed_run_is_closed_with_the_message_of_its_last_step(store, ledger):
    stream = record_run(store, ROW, steps(step("start"), error=ValueError("no fold\n  fits")))
    assert next(stream).stage == "start"
    failed = next(stream)
    assert (failed.stage, failed.message) == ("error", "no fold fits")
    with pytest.raises(ValueError):
        next(stream)
    assert noted(ledger) == ["start", "error"]
    assert (ledger.run(RUN).status, ledger.run(RUN).message) == ("failed", "no fold fits")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(1)])
def test_interrupted_run_is_closed_as_interrupted(store, ledger, interrupt):
    with pytest.raises(type(interrupt)):
        list(record_run(store, ROW, steps(step("start"), error=interrupt)))
    assert ledger.run(RUN).status == "interrupted"
    assert "run it again to resume" in ledger.run(RUN).message


def test_caller_that_stops_early_interrupts_the_run(store, ledger):
    ended = []

    def endless():
        try:
            while True:
                yield step("start")
        finally:
            ended.append(True)

    stream = record_run(store, ROW, endless())
    next(stream)
    stream.close()
    assert ended == [True]
    assert ledger.run(RUN).status == "interrupted"


def test_run_halted_after_a_step_is_interrupted_with_author_and_remedy(store, ledger):
    stream = record_run(store, ROW, steps(step("start"), step("done")))
    next(stream)
    FileKillSwitch(store.home).write(Halt(reason="wrong prices", by="ann", at=AT))
    with pytest.raises(RunHalted) as halted:
        next(stream)
    run = ledger.run(RUN)
    assert (run.status, run.message, noted(ledger)) == ("interrupted", str(halted.value), ["start"])
    assert "ann stopped trading" in run.message
    assert "nvtrader resume" in run.message


def test_halt_before_a_run_interrupts_it_before_its_first_step(store, ledger, monkeypatch):
    monkeypatch.setenv("NVTRADER_KILL_SWITCH", "1")
    with pytest.raises(RunHalted):
        next(record_run(store, ROW, steps(step("start"))))
    assert (ledger.run(RUN).status, noted(ledger)) == ("interrupted", [])


def test_halt_after_the_last_step_leaves_the_run_done(store, ledger):
    for _ in record_run(store, ROW, steps(step("done"))):
        FileKillSwitch(store.home).write(Halt(reason="wrong prices", by="ann", at=AT))
    assert ledger.run(RUN).status == "done"


def test_ledger_stores_each_tenth_and_the_stream_every_step(store, ledger):
    told = [
        step("train.step", fold=0, seed=seed, timesteps=timesteps, total_timesteps=1000)
        for timesteps in range(10, 1010, 10)
        for seed in (0, 1)
    ]
    assert list(record_run(store, ROW, steps(*told))) == told
    events = ledger.events(RUN)
    assert sorted(events["timesteps"].to_list()) == sorted([10, *range(100, 1001, 100)] * 2)


def test_ledger_stores_every_step_of_other_stages(store, ledger):
    list(record_run(store, ROW, steps(*[step("train.checkpoint", fold=0, seed=0)] * 5)))
    assert noted(ledger) == ["train.checkpoint"] * 5
