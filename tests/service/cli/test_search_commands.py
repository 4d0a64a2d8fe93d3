import json
import os
import signal
import subprocess
import time

import psutil
import pytest

from nvtrader_pipelines import Pipeline, SearchSettings
from nvtrader_pipelines.orchestration import mlflow_search
from nvtrader_pipelines.research.journal import SessionClosed
from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.research.search_settings import BUDGET
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, INTERRUPTED, OK
from nvtrader_pipelines.service.search_display import stop_on_interrupt
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from tests.homes import NVTRADER, copy_home, environment
from tests.research.search_homes import bars_of, land, market, search_home, trials_of
from tests.research.sessions import a_session, write_session
from tests.service.cli.error_lines import is_one_line_error

pytestmark = pytest.mark.slow

QUICK = ("--source", "landing", "--eval-mode", "cufolio_only", "--proposer", "random", "--workers", "1")
SPACE = "agent.max_position_pct: {low: 0.25, high: 0.1}\n"
SECONDS = 60.0


@pytest.fixture(scope="module")
def landed(tmp_path_factory):
    """A home with a market to search; read it, never write it."""
    return search_home(tmp_path_factory.mktemp("searched") / "home", market())


@pytest.fixture
def searched(landed, tmp_path):
    """A copy of it."""
    return copy_home(landed, tmp_path / "searched")


@pytest.fixture
def start(searched, command):
    """The command that starts a search of two trials, unless told otherwise."""
    return lambda *arguments: command(searched)("research", "start", *QUICK, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seconds", "0"),
        ("--symbols", "S00,NOPE"),
        ("--symbols", ","),
        ("--goal", "less\x1b[31m risk"),
        ("--goal", " "),
        ("--space", "SPACE"),
        ("--space", "nowhere.yaml"),
        ("--proposer", "grid-search"),
        ("--prune",),
        ("--folds", "300"),
        ("--like", "nothing"),
        ("--source", "nowhere"),
        ("--sealed-from", "2100-01-01"),
        ("--sealed-from", "1990-01-01"),
        ("--validation-from", "2100-01-01"),
        ("--validation-from", "2012-01-03", "--sealed-from", "2012-01-03"),
    ],
    ids=" ".join,
)
def test_bad_option_exits_with_3_and_leaves_no_session(searched, start, tmp_path, arguments):
    (tmp_path / "space.yaml").write_text(SPACE)
    refused = start(*(str(tmp_path / "space.yaml") if part == "SPACE" else part for part in arguments))
    assert refused.exit_code == BAD_INPUT, refused.output
    assert is_one_line_error(refused.stderr)
    assert Store(searched).searches.folders() == []
    assert not searched.research_sessions.exists()


def test_short_market_exits_with_3_and_leaves_no_session(searched, start):
    land(Store(searched), bars_of(market(n_sessions=700)))
    refused = start()
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)
    assert not searched.research_sessions.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "budget", "max_seconds"),
    [
        pytest.param((), BUDGET, None, id="none", marks=pytest.mark.nightly),
        pytest.param(("--seconds", "0.5"), None, 0.5, id="seconds"),
    ],
)
def test_budget_is_20_trials_unless_time_is_limited(searched, start, limits, budget, max_seconds):
    finished = start(*limits)
    assert finished.exit_code == OK, finished.output
    (folder,) = Store(searched).searches.folders()
    spec = read_session(folder).session.spec
    assert (spec.budget, spec.max_seconds) == (budget, max_seconds)
    if budget:
        assert len(trials_of(folder)) == budget


@pytest.mark.slow
def test_search_from_python_is_the_one_that_the_command_line_shows(searched, command):
    quick = {"source": "landing", "eval_mode": "cufolio_only", "proposer": "random", "workers": 1}
    document = Pipeline(searched.root).searches.start(SearchSettings(**quick, budget=2, max_seconds=90.0))
    assert (document.spec.budget, document.spec.max_seconds, document.summary.n_trials) == (2, 90.0, 2)
    assert json.loads(command(searched)("research", "status", "--json").stdout) == document.model_dump(mode="json")


@pytest.mark.slow
def test_interrupt_before_or_after_a_trial_ends_the_session(searched, start, command, monkeypatch):
    track = mlflow_search.track_session

    def interrupt_first(*arguments):
        signal.raise_signal(signal.SIGINT)
        yield from track(*arguments)

    with monkeypatch.context() as early:
        early.setattr(mlflow_search, "track_session", interrupt_first)
        ended = start("--budget", "3")
    assert ended.exit_code == INTERRUPTED
    (folder,) = Store(searched).searches.folders()
    assert trials_of(folder) == []
    append, interrupts = SessionFolder.append, [signal.SIGINT]

    def interrupt_once(folder, line):
        append(folder, line)
        if interrupts:
            signal.raise_signal(interrupts.pop())

    with monkeypatch.context() as late:
        late.setattr(SessionFolder, "append", interrupt_once)
        ended = command(searched)("research", "resume", "--workers", "1")
    assert (ended.exit_code, interrupts) == (INTERRUPTED, [])
    assert 0 < len(trials_of(folder)) < 3
    assert not isinstance(read_session(folder).lines[-1], SessionClosed)
    assert not folder.stop_request.exists()
    assert command(searched)("research", "resume", "--workers", "1").exit_code == OK
    assert len(trials_of(folder)) == 3


@pytest.mark.slow
def test_full_disk_exits_with_3_in_one_line(searched, start, monkeypatch):
    monkeypatch.setattr(SessionFolder, "append", append_to_full_disk)
    failed = start("--budget", "3")
    assert failed.exit_code == BAD_INPUT
    assert is_one_line_error(failed.stderr)
    assert "no space left on device" in failed.stderr


def append_to_full_disk(folder, line):
    """Append to a disk without room."""
    with open("/dev/full", "ab", buffering=0) as full:  # noqa: PTH123 - a device
        full.write(line.encode())


def start_process(home: Home, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [NVTRADER, "research", "start", "--source", "landing", *arguments],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_until(is_true, process):
    """Wait until a condition holds of the folders of a running command."""
    began = time.monotonic()
    while not is_true():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() - began < SECONDS
        time.sleep(0.05)


def has_working_grandchild(process: subprocess.Popen) -> bool:
    """Whether a worker, forked by the server of the command, judges a trial; an idle one uses no CPU."""
    servers = psutil.Process(process.pid).children()
    workers = [worker for server in servers for worker in server.children()]
    return any(worker.cpu_times().user > 0.5 for worker in workers)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_first_interrupt_ends_after_current_trials(searched):
    process = start_process(
        searched, "--eval-mode", "cufolio_only", "--proposer", "random", "--budget", "100000", "--workers", "2"
    )
    wait_until(lambda: any(len(each.read_lines()) > 2 for each in Store(searched).searches.folders()), process)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=SECONDS)
    (folder,) = Store(searched).searches.folders()
    assert process.returncode == INTERRUPTED
    assert not isinstance(read_session(folder).lines[-1], SessionClosed)
    assert not folder.stop_request.exists()


@pytest.mark.usefixtures("interruptible")
def test_second_interrupt_is_raised_after_the_first_requests_a_stop(home):
    folder = write_session(home, a_session(), [])
    with stop_on_interrupt(folder, quiet=True) as signals:
        signal.raise_signal(signal.SIGINT)
        assert (signals, folder.stop_request.exists()) == ([signal.SIGINT], True)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_second_interrupt_ends_at_once(searched):
    process = start_process(searched, "--eval-mode", "ppo_only", "--total-timesteps", "100000000", "--workers", "1")
    wait_until(lambda: any(each.is_running for each in Store(searched).searches.folders()), process)
    wait_until(lambda: has_working_grandchild(process), process)
    (folder,) = Store(searched).searches.folders()
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGINT)
    wait_until(folder.stop_request.exists, process)
    time.sleep(0.5)
    assert process.poll() is None  # a trial is running
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == INTERRUPTED
    assert read_session(folder).lines == ()
    assert psutil.wait_procs(children, timeout=SECONDS)[1] == []
