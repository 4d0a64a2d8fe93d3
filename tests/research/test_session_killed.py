import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RESEARCH_SESSIONS, RESEARCH_TRIALS
from tests.homes import copy_home
from tests.research.search_homes import CAP, EVEN, cufolio, new_session, run, stable, trials_of

pytestmark = pytest.mark.slow

SCRIPT = "from tests.research.search_homes import run_in_forks; run_in_forks()"


class Forks:
    """Process that runs sessions in forks."""

    def __init__(self):
        settings = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=settings,
            start_new_session=True,
        )

    def run(self, home, folder, workers=1, kill_at=None, n_lines=None):
        """Run a session and return its exit code; kill it after seconds from its begin, or from a number of lines."""
        self.process.stdin.write(f"{home.root} {folder.session_id} {workers}\n")
        self.process.stdin.flush()
        pid = int(self._read().removeprefix("pid "))
        for _ in range(n_lines or 0):
            if (text := self._read()).startswith("end "):
                return int(text.removeprefix("end "))
        if kill_at is not None:
            time.sleep(kill_at)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while not (text := self._read()).startswith("end "):
            pass
        return int(text.removeprefix("end "))

    def _read(self):
        text = self.process.stdout.readline()
        assert text, "the process of the forks has ended"
        return text.strip()

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture(scope="module")
def forks():
    started = Forks()
    yield started
    started.close()


def stable_rows(home):
    """Rows of the tables without what differs between equal sessions."""
    tables = Store(home).tables
    rows = [tables.read(table).drop("seconds", "finished_at") for table in (RESEARCH_SESSIONS, RESEARCH_TRIALS)]
    return [frame.sort(frame.columns[1]).to_dicts() for frame in rows]


def tear(folder):
    """Leave half a line after the complete ones, as a kill in the middle of a write does."""
    content = folder.journal.read_bytes()
    line = content.rstrip(b"\n").rpartition(b"\n")[2]
    if content.endswith(b"\n"):
        folder.journal.write_bytes(content + line[: len(line) // 2])


@pytest.mark.parametrize("proposer", ["optuna", pytest.param("cma_es", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("n_kills", "budget"), [(2, 6), pytest.param(20, 12, marks=pytest.mark.nightly)])
def test_session_killed_at_random_moments_equals_the_straight_one(
    forks, planted_home, tmp_path, n_kills, budget, proposer
):
    folder = new_session(planted_home, cufolio(EVEN), bounds=CAP, proposer={"kind": proposer}, budget=budget)
    began = copy_home(planted_home, tmp_path / "began")
    run(planted_home, folder)
    expected, rows = stable(folder), stable_rows(planted_home)
    assert [line["event"] for line in expected[-2:]] == ["look", "verdict"]
    generator, n_killed, n_torn, n_homes = random.Random(n_kills), 0, 0, 0
    while n_killed < n_kills:
        n_homes += 1
        home = copy_home(began, tmp_path / f"killed-{n_homes}")
        killed = SessionFolder.of(home, folder.session_id)
        for _ in range(n_kills):
            moment = {"n_lines": generator.randrange(len(expected)), "kill_at": generator.uniform(0.0, 0.1)}
            if n_killed == n_kills or forks.run(home, killed, **moment) == 0:
                break
            n_killed += 1
            if killed.journal.exists() and n_killed % 3 == 2:
                tear(killed)
                n_torn += 1
        assert forks.run(home, killed) == 0
        assert stable(killed) == expected
        assert stable_rows(home) == rows
        assert killed.report.read_text()
    assert n_torn > 0


@pytest.mark.parametrize(("n_kills", "budget"), [(2, 6), pytest.param(10, 12, marks=pytest.mark.nightly)])
def test_killed_session_of_two_workers_has_exactly_its_budget(forks, noise_home, n_kills, budget):
    folder = new_session(noise_home, budget=budget, workers=2, proposer={"kind": "optuna"})
    generator = random.Random(n_kills)
    for _ in range(n_kills):
        n_lines = generator.randrange(1, budget // 2)
        forks.run(noise_home, folder, 2, kill_at=generator.uniform(0.0, 0.05), n_lines=n_lines)
    assert forks.run(noise_home, folder, 2) == 0
    trials = trials_of(folder)
    assert [line.trial for line in trials] == list(range(1, budget + 1))
    assert len({line.spec_hash for line in trials}) == budget
    assert len({line.proposal for line in trials}) == budget
    assert stable(folder)[-1]["event"] == "verdict"
