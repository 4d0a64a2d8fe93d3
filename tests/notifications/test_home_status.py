import fcntl
from datetime import timedelta
from pathlib import Path

import pytest

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.notifications.home_status import HomeStatus, latest_curve, read_home_status
from nvtrader_pipelines.notifications.send_due import record_command
from nvtrader_pipelines.runs.run_tables import JUDGEMENT_STARTS
from nvtrader_pipelines.storage.code_server import LOCK
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.specs import write_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.training_curve_file import CurvePoint, append_point
from tests.homes import SPEC, small_home
from tests.research.sessions import a_journal, a_session, write_session
from tests.runs.small_runs import market_home
from tests.service.cli.sample_plans import AT, SESSION, TURNOVER, append_plan, plan, write_book
from tests.storage.ledger.run_rows import run_row

RUN_ID = "aa11" + "0" * 12


@pytest.fixture
def small(tmp_path):
    """A home with one experiment and no results."""
    return small_home(tmp_path / "small")


def read(home) -> HomeStatus:
    return read_home_status(Store(home), AT)


def begin(home, run_id=RUN_ID, started_at=AT):
    """Begin a run of this process."""
    ledger = Store(home).ledger
    ledger.begin(run_row(ledger, SPEC, run_id=run_id, kind="walk_forward", started_at=started_at))
    return ledger


def files_of(home) -> set[Path]:
    return set(home.root.rglob("*"))


def test_status_of_empty_home_begins_with_ingest_and_writes_nothing(home):
    before = files_of(home)
    status = read(home)
    assert files_of(home) == before
    assert (status.active, status.halted, status.ui, status.next_step.command) == (
        None,
        None,
        "",
        "nvtrader ingest",
    )
    assert [status.accounts, status.running, status.waiting_plans, status.failed_runs] == [()] * 4


def test_running_run_has_its_last_stage(small):
    ledger, facts = begin(small), {"task_id": "t", "run_id": RUN_ID, "timestamp": AT}
    step = Progress(
        stage="train.step",
        message="fold 1 of 3",
        fold=1,
        seed=0,
        timesteps=5,
        total_timesteps=9,
        metrics={"mean_reward": 0.5},
        **facts,
    )
    ledger.record_event(step)
    append_point(small, step)
    (run,) = read(small).running
    assert [(point.timesteps, point.mean_reward) for point in run.curve] == [(5, 0.5)]
    assert (run.run_id, run.status, run.state, run.at) == (RUN_ID, "running", "training: fold 1 of 3", AT)
    assert read(small).next_step.command == "nvtrader runs"


@pytest.mark.parametrize(
    ("kind", "reported", "phase"),
    [
        ("walk_forward", ["start"], "training"),
        ("walk_forward", ["start", "evaluate.step"], "training"),  # a seed is chosen
        ("walk_forward", ["start", "done"], "testing"),
        ("walk_forward", ["start", "done", "start", "evaluate.step"], "testing"),
        ("walk_forward", ["start", "done", "start", "evaluate.step", JUDGEMENT_STARTS], "judging"),
        ("walk_forward", ["start", "done", "start", JUDGEMENT_STARTS, "start"], "testing"),  # again, after a failure
        ("replay", ["start"], "testing"),
        ("forward", ["start", "equity.update", JUDGEMENT_STARTS], "judging"),
    ],
)
def test_running_run_is_in_training_testing_or_judging(small, kind, reported, phase):
    ledger, facts = Store(small).ledger, {"task_id": "t", "run_id": RUN_ID, "timestamp": AT}
    ledger.begin(run_row(ledger, SPEC, run_id=RUN_ID, kind=kind, started_at=AT))
    for stage in reported:
        ledger.record_event(Progress(stage="start" if stage == JUDGEMENT_STARTS else stage, message=stage, **facts))
    assert [run.state for run in read(small).running] == [f"{phase}: {reported[-1]}"]


def test_running_search_is_shown_with_its_best_so_far(small):
    stopped, running = (write_session(small, a_session(name), a_journal(12).lines) for name in ("s1", "s2"))
    assert stopped.is_running is False
    with running.lock():
        status = read(small)
    (search,) = status.searches
    assert (search.session_id, search.n_trials, search.budget) == ("s2", 12, 30)
    assert search.best_sharpe > search.base_sharpe
    assert status.next_step.command == "nvtrader research status"
    assert read(small).searches == ()


def test_latest_curve_is_that_of_the_training_that_reported_last():
    reported = [(1, 20), (2, 10), (1, 10), (1, 30)]
    points = [
        CurvePoint(fold=fold, seed=0, timesteps=timesteps, total_timesteps=30, mean_reward=0.1)
        for fold, timesteps in reported
    ]
    assert [(point.fold, point.timesteps) for point in latest_curve(points)] == [(1, 10), (1, 20), (1, 30)]
    assert latest_curve([]) == []


def test_failed_run_is_shown_until_its_version_succeeds(small):
    begin(small).finish(RUN_ID, "failed", message="no data")
    (run,) = read(small).failed_runs
    assert (run.status, run.state, read(small).next_step.command) == (
        "failed",
        "no data",
        "nvtrader runs show aa110000",
    )
    later = "bb22" + "0" * 12
    begin(small, later, AT + timedelta(hours=1)).finish(later, "done")
    done = read(small)
    assert (done.failed_runs, done.next_step.command) == ((), "nvtrader policies activate tiny")


@pytest.mark.slow
def test_next_step_before_training_fits_the_market(tmp_path):
    store = market_home(tmp_path / "market")

    def step_with(name, source="landing"):
        write_experiment(store.home, name, fields={"market": {"source": source}})
        return read_home_status(store, AT).next_step

    new = step_with("shipped", "sample")
    assert (new.command, new.link) == ("nvtrader experiments new NAME --source landing", "/lab/build")
    store.ledger.archive(["archived"])
    assert step_with("archived") == new
    assert step_with("ours").command == "nvtrader experiments run ours"
    assert step_with("more").command == "nvtrader materialize"


def test_waiting_plan_and_refused_file_wait(small):
    waits = append_plan(small, plan(), TURNOVER)
    (small.experiments / "broken.yaml").write_text("name: broken\nseeds: [-1]\n")
    status = read(small)
    assert [each.identity for each in status.waiting_plans] == [waits.plan_id]
    assert list(status.refused_files) == ["broken.yaml"]
    assert status.next_step.command == f"nvtrader plans show {waits.plan_id}"


def test_failed_command_is_the_next_command(home):
    record_command(home, "nvtrader trade", "no bars", AT)
    status = read(home)
    assert (status.failed_commands, status.next_step.command) == ({"nvtrader trade": "no bars"}, "nvtrader trade")


def test_halted_home_shows_account_and_resume(home):
    write_book(home, 1.0, 1.1)
    FileKillSwitch(home).write(Halt(reason="news", by="ann", at=AT))
    status = read(home)
    (account,) = status.accounts
    assert (account.account, account.session, account.equity) == ("paper", SESSION.replace(day=3), 1.1)
    assert status.halted
    assert "news" in status.halted
    assert status.next_step.command == "nvtrader resume --reason WHY"


def test_url_of_a_ui_is_shown_while_its_lock_is_held(home):
    home.dagster.mkdir(parents=True)
    (home.dagster / LOCK).write_text("http://127.0.0.1:3000")
    with (home.dagster / LOCK).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert read(home).ui == "http://127.0.0.1:3000"
    assert read(home).ui == ""
