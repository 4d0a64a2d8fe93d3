import datetime as dt
import io

import pytest

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.service.consoles import plain_console
from nvtrader_pipelines.service.progress_display import N_LINES, follow_run, show_progress

AT = dt.datetime(2024, 1, 2, 12, tzinfo=dt.UTC)


def step(stage, share=None, message="", run_id="run") -> Progress:
    fields = {"message": message or stage, "timestamp": AT}
    return Progress(task_id="task", run_id=run_id, stage=stage, share=share, **fields)


def steps(run_id="run"):
    """Yield the steps of a run: start, a hundred training steps, done."""
    yield step("start", 0.0, run_id=run_id)
    for i in range(100):
        yield step("train.step", i / 100, f"step {i}", run_id)
    yield step("done", 1.0, "all done [/] of it", run_id)


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def console(request):
    return plain_console(file=io.StringIO(), force_terminal=request.param, width=120)


def test_follow_run_returns_run_id(console):
    with show_progress(console) as on_progress:
        assert follow_run(steps("the-run"), on_progress) == "the-run"


def test_progress_in_a_pipe_prints_start_end_and_tenths():
    console = plain_console(file=io.StringIO(), width=120)
    with show_progress(console) as on_progress:
        follow_run(steps(), on_progress)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "12:00:00 start: start"
    assert lines[1:-1] == [f"12:00:00 train.step: step {100 * part // N_LINES}" for part in range(1, N_LINES)]
    assert lines[-1] == "12:00:00 done: all done [/] of it"


def test_progress_on_terminal_shows_one_bar_per_run():
    console = plain_console(file=io.StringIO(), force_terminal=True, width=120)
    with show_progress(console) as on_progress:
        for each in (step("start", 0.0), step("start", 0.0, run_id="other"), step("train.step", 0.25, "a quarter")):
            on_progress(each)
        on_progress(step("error", message="it broke", run_id="other"))
        on_progress(step("done", 1.0, "net Sharpe 0.34"))
    shown = console.file.getvalue()
    assert "━" in shown
    assert "net Sharpe 0.34\n" in shown
    assert "it broke\n" in shown


def test_quiet_progress_prints_nothing(console):
    with show_progress(console, quiet=True) as on_progress:
        assert follow_run(steps(), on_progress) == "run"
    assert console.file.getvalue() == ""


def test_failing_run_ends_its_bar_and_raises(console):
    def failing():
        yield step("start", 0.0)
        yield step("error", message="no data")
        raise ValueError("no data")

    with pytest.raises(ValueError), show_progress(console) as on_progress:
        follow_run(failing(), on_progress)
    assert "no data" in console.file.getvalue()
