import pytest

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import CODE_VERSION, RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.storage.recording import Launch, RunRow, failing, recorded
from tests.markets import synthetic_panel
from tests.storage.frames import AT

PANEL = synthetic_panel(400)
PLAN = RunPlan(ExperimentSpec(name="a"), PANEL, panel_digest(PANEL), (Fold(0, 0, 199, 206, 399),))
ROW = RunRow.of(PLAN, "train", Launch("task", "dagster"))


class Written:
    """A ledger as the list of what was written into it."""

    def __init__(self):
        self.begun, self.events, self.finished = [], [], []

    def begin(self, row):
        self.begun.append(row)

    def note(self, progress):
        self.events.append(progress)

    def finish(self, run_id, status, *, metrics=None, mlflow_run_id=None, message=None):
        self.finished.append((run_id, status, metrics, message))

    def keep_policies(self, run_id, policies):
        raise NotImplementedError

    def find_run(self, prefix):
        raise NotImplementedError


def step(stage, **more):
    return Progress(task_id="task", run_id=PLAN.run_id, stage=stage, message=stage, timestamp=AT, **more)


def steps(*told, error=None):
    yield from told
    if error:
        raise error
    return "result"


def test_a_run_that_ends_well_is_done_with_the_figures_of_its_last_step():
    ledger, told = Written(), [step("start"), step("done", metrics={"all/sharpe": 1.0})]
    stream = recorded(ledger, ROW, steps(*told))
    assert ledger.begun == []  # nothing happens before it is asked for
    assert list(stream) == told
    assert ledger.begun == [ROW]
    assert ledger.events == told
    assert ledger.finished == [(PLAN.run_id, "done", {"all/sharpe": 1.0}, None)]


def test_the_result_of_the_steps_is_handed_on():
    stream = recorded(Written(), ROW, steps())
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == "result"


def test_a_run_that_goes_on_elsewhere_stays_open():
    ledger = Written()
    list(recorded(ledger, ROW, steps(step("done")), closes=False))
    assert ledger.finished == []


def test_a_run_that_fails_is_closed_with_the_sentence_told_as_its_last_step():
    ledger, told = Written(), []
    with pytest.raises(ValueError, match="no fold"):
        for each in recorded(ledger, ROW, steps(step("start"), error=ValueError("no fold\n  fits"))):
            told.append(each)
    assert [(each.stage, each.message) for each in told] == [("start", "start"), ("error", "no fold fits")]
    assert ledger.events == told
    assert ledger.finished == [(PLAN.run_id, "failed", None, "no fold fits")]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(1)])
def test_a_run_that_is_interrupted_is_closed_as_such(interrupt):
    ledger = Written()
    with pytest.raises(type(interrupt)):
        list(recorded(ledger, ROW, steps(step("start"), error=interrupt)))
    ((_, status, _, message),) = ledger.finished
    assert status == "interrupted"
    assert "run it again to go on" in message


def test_a_caller_that_stops_early_ends_the_steps_and_interrupts_the_run():
    ledger, ended = Written(), []

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
    assert [status for _, status, *_ in ledger.finished] == ["interrupted"]


def test_the_ledger_keeps_every_tenth_of_a_training_and_the_stream_every_step():
    told = [
        step("train.step", fold=0, seed=seed, timesteps=timesteps, total_timesteps=1000)
        for timesteps in range(10, 1010, 10)
        for seed in (0, 1)
    ]
    ledger = Written()
    assert list(recorded(ledger, ROW, steps(*told))) == told
    assert len(ledger.events) == 2 * 11
    assert {event.timesteps for event in ledger.events} == {10, *range(100, 1001, 100)}


def test_other_stages_are_all_kept():
    told = [step("train.checkpoint", fold=0, seed=0) for _ in range(5)]
    ledger = Written()
    list(recorded(ledger, ROW, steps(*told)))
    assert ledger.events == told


def test_the_row_of_a_run_names_all_it_is_made_of():
    assert (ROW.run_id, ROW.kind, ROW.parent_run_id) == (PLAN.run_id, "train", None)
    assert (ROW.spec_hash, ROW.partition_key) == (PLAN.spec.spec_hash, PLAN.spec.partition_key)
    assert (ROW.window_first, ROW.window_last) == (PANEL.sessions[206].item(), PANEL.sessions[399].item())
    assert (ROW.seeds, ROW.code_version, ROW.source) == (PLAN.spec.seeds, CODE_VERSION, "synthetic")
    assert (ROW.task_id, ROW.dagster_run_id) == ("task", "dagster")


def test_a_step_of_a_larger_run_that_fails_closes_it_and_one_that_ends_well_does_not():
    ledger = Written()
    with failing(ledger, "run"):
        pass
    assert ledger.finished == []
    with pytest.raises(ValueError, match="broken"), failing(ledger, "run"):
        raise ValueError("broken")
    with pytest.raises(KeyboardInterrupt), failing(ledger, "run"):
        raise KeyboardInterrupt
    assert [(status, message) for _, status, _, message in ledger.finished][0] == ("failed", "broken")
    assert ledger.finished[1][1] == "interrupted"
