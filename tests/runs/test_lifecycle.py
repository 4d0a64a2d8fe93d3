import pytest

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.runs.lifecycle import record_run
from nvtrader_pipelines.storage.ledger import RunRow
from nvtrader_pipelines.storage.store import Store
from tests.markets import synthetic_panel
from tests.storage.table_rows import AT

PANEL = synthetic_panel(400)
PLAN = RunPlan(ExperimentSpec(name="a"), PANEL, panel_digest(PANEL), (Fold(0, 0, 199, 206, 399),))
RUN = PLAN.run_id
ROW = RunRow.of(PLAN, "task", AT, dagster_run_id="dagster")


@pytest.fixture
def ledger(home):
    found = Store(home).ledger
    found.register(PLAN.spec)
    return found


def step(stage, **more):
    return Progress(task_id="task", run_id=RUN, stage=stage, message=stage, timestamp=AT, **more)


def steps(*told, error=None):
    yield from told
    if error:
        raise error
    return "result"


def noted(ledger):
    return ledger.events(RUN)["stage"].to_list()


def test_successful_run_is_done_with_metrics_of_its_last_step(ledger):
    told = [step("start"), step("done", metrics={"all/sharpe": 1.0})]
    stream = record_run(ledger, ROW, steps(*told))
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


def test_record_run_returns_the_result_of_the_steps(ledger):
    stream = record_run(ledger, ROW, steps())
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == "result"


def test_record_run_without_closing_leaves_the_run_open(ledger):
    list(record_run(ledger, ROW, steps(step("done")), closes=False))
    assert ledger.run(RUN).status == "running"


def test_metrics_of_an_earlier_execution_are_kept(ledger):
    for metrics in ({"all/sharpe": 1.0}, {}):
        list(record_run(ledger, ROW, steps(step("done", metrics=metrics))))
    assert (ledger.run(RUN).metrics, ledger.run(RUN).attempts) == ({"all/sharpe": 1.0}, 2)


def test_failed_run_is_closed_with_the_message_of_its_last_step(ledger):
    stream = record_run(ledger, ROW, steps(step("start"), error=ValueError("no fold\n  fits")))
    assert next(stream).stage == "start"
    failed = next(stream)
    assert (failed.stage, failed.message) == ("error", "no fold fits")
    with pytest.raises(ValueError, match="no fold"):
        next(stream)
    assert noted(ledger) == ["start", "error"]
    assert (ledger.run(RUN).status, ledger.run(RUN).message) == ("failed", "no fold fits")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(1)])
def test_interrupted_run_is_closed_as_interrupted(ledger, interrupt):
    with pytest.raises(type(interrupt)):
        list(record_run(ledger, ROW, steps(step("start"), error=interrupt)))
    assert ledger.run(RUN).status == "interrupted"
    assert "run it again to resume" in ledger.run(RUN).message


def test_caller_that_stops_early_interrupts_the_run(ledger):
    ended = []

    def endless():
        try:
            while True:
                yield step("start")
        finally:
            ended.append(True)

    stream = record_run(ledger, ROW, endless())
    next(stream)
    stream.close()
    assert ended == [True]
    assert ledger.run(RUN).status == "interrupted"


def test_ledger_stores_each_tenth_and_the_stream_every_step(ledger):
    told = [
        step("train.step", fold=0, seed=seed, timesteps=timesteps, total_timesteps=1000)
        for timesteps in range(10, 1010, 10)
        for seed in (0, 1)
    ]
    assert list(record_run(ledger, ROW, steps(*told))) == told
    events = ledger.events(RUN)
    assert sorted(events["timesteps"].to_list()) == sorted([10, *range(100, 1001, 100)] * 2)


def test_ledger_stores_every_step_of_other_stages(ledger):
    list(record_run(ledger, ROW, steps(*[step("train.checkpoint", fold=0, seed=0)] * 5)))
    assert noted(ledger) == ["train.checkpoint"] * 5
