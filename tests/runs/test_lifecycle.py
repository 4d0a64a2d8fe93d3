import pytest

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.runs.lifecycle import recorded
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


def test_a_run_that_ends_well_is_done_with_the_figures_of_its_last_step(ledger):
    told = [step("start"), step("done", metrics={"all/sharpe": 1.0})]
    stream = recorded(ledger, ROW, steps(*told))
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


def test_the_result_of_the_steps_is_handed_on(ledger):
    stream = recorded(ledger, ROW, steps())
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == "result"


def test_a_run_that_goes_on_elsewhere_stays_open(ledger):
    list(recorded(ledger, ROW, steps(step("done")), closes=False))
    assert ledger.run(RUN).status == "running"


def test_figures_of_an_earlier_execution_stay_where_a_later_one_has_none(ledger):
    for metrics in ({"all/sharpe": 1.0}, {}):
        list(recorded(ledger, ROW, steps(step("done", metrics=metrics))))
    assert (ledger.run(RUN).metrics, ledger.run(RUN).attempts) == ({"all/sharpe": 1.0}, 2)


def test_a_run_that_fails_is_closed_with_the_sentence_told_as_its_last_step(ledger):
    stream = recorded(ledger, ROW, steps(step("start"), error=ValueError("no fold\n  fits")))
    assert next(stream).stage == "start"
    failed = next(stream)
    assert (failed.stage, failed.message) == ("error", "no fold fits")
    with pytest.raises(ValueError, match="no fold"):
        next(stream)
    assert noted(ledger) == ["start", "error"]
    assert (ledger.run(RUN).status, ledger.run(RUN).message) == ("failed", "no fold fits")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(1)])
def test_a_run_that_is_interrupted_is_closed_as_such(ledger, interrupt):
    with pytest.raises(type(interrupt)):
        list(recorded(ledger, ROW, steps(step("start"), error=interrupt)))
    assert ledger.run(RUN).status == "interrupted"
    assert "run it again to go on" in ledger.run(RUN).message


def test_a_caller_that_stops_early_ends_the_steps_and_interrupts_the_run(ledger):
    ended = []

    def endless():
        try:
            while True:
                yield step("start")
        finally:
            ended.append(True)

    stream = recorded(ledger, ROW, endless())
    next(stream)
    stream.close()
    assert ended == [True]
    assert ledger.run(RUN).status == "interrupted"


def test_the_ledger_keeps_every_tenth_of_a_training_and_the_stream_every_step(ledger):
    told = [
        step("train.step", fold=0, seed=seed, timesteps=timesteps, total_timesteps=1000)
        for timesteps in range(10, 1010, 10)
        for seed in (0, 1)
    ]
    assert list(recorded(ledger, ROW, steps(*told))) == told
    events = ledger.events(RUN)
    assert sorted(events["timesteps"].to_list()) == sorted([10, *range(100, 1001, 100)] * 2)


def test_other_stages_are_all_kept(ledger):
    list(recorded(ledger, ROW, steps(*[step("train.checkpoint", fold=0, seed=0)] * 5)))
    assert noted(ledger) == ["train.checkpoint"] * 5
