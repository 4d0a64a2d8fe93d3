import datetime as dt
import io

import pytest
from rich.console import Console

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.service.cli.progress_display import N_LINES, follow_run, show_progress

AT = dt.datetime(2024, 1, 2, 12, tzinfo=dt.UTC)


def step(stage, share=None, message="", run_id="run") -> Progress:
    said = {"message": message or stage, "timestamp": AT}
    return Progress(task_id="task", run_id=run_id, stage=stage, share=share, **said)


def steps(run_id="run"):
    """A run of a hundred small steps."""
    yield step("start", 0.0, run_id=run_id)
    for i in range(100):
        yield step("train.step", i / 100, f"step {i}", run_id)
    yield step("done", 1.0, "all done [/] of it", run_id)


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def console(request):
    return Console(file=io.StringIO(), force_terminal=request.param, width=120)


def test_following_a_run_gives_its_id(console):
    with show_progress(console) as watch:
        assert follow_run(steps("the-run"), watch) == "the-run"


def test_elsewhere_a_line_is_written_at_the_begin_the_end_and_each_tenth():
    console = Console(file=io.StringIO(), width=120)
    with show_progress(console) as watch:
        follow_run(steps(), watch)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "12:00:00 start: start"
    assert lines[1:-1] == [f"12:00:00 train.step: step {100 * part // N_LINES}" for part in range(1, N_LINES)]
    assert lines[-1] == "12:00:00 done: all done [/] of it"


def test_on_a_terminal_there_is_one_bar_per_run_until_it_ends():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with show_progress(console) as watch:
        for each in (step("start", 0.0), step("start", 0.0, run_id="other"), step("train.step", 0.25, "a quarter")):
            watch(each)
        watch(step("error", message="it broke", run_id="other"))
        watch(step("done", 1.0, "net Sharpe 0.34"))
    shown = console.file.getvalue()
    assert "━" in shown
    assert "net Sharpe 0.34\n" in shown
    assert "it broke\n" in shown


def test_a_quiet_run_shows_nothing(console):
    with show_progress(console, quiet=True) as watch:
        assert follow_run(steps(), watch) == "run"
    assert console.file.getvalue() == ""


def test_a_run_that_fails_ends_the_bar_and_its_error_goes_on(console):
    def failing():
        yield step("start", 0.0)
        yield step("error", message="the market is gone")
        raise ValueError("the market is gone")

    with pytest.raises(ValueError, match="the market is gone"), show_progress(console) as watch:
        follow_run(failing(), watch)
    assert "the market is gone" in console.file.getvalue()
