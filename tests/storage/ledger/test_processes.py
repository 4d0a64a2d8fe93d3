"""Liveness of processes, and ten processes on one ledger."""

import datetime as dt
import os
import subprocess

import psutil
import pytest

from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.processes import host_name, is_alive, this_process
from tests.storage.ledger.run_rows import SPEC
from tests.storage.table_rows import start

# Ten children wait for a signal; then each opens the ledger, registers the same spec, and writes runs.
TEN = """
import os, sys
from pathlib import Path
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import Ledger
from tests.storage.ledger.run_rows import SPEC, event, run_row
home = Home(Path(sys.argv[1]))
go, signal = os.pipe()
children = []
for number in range(10):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(signal)
            os.read(go, 1)
            ledger = Ledger.open(home)
            assert ledger.register(SPEC) == SPEC.partition_key
            for run_id in (f"run-{number}", "contended"):
                ledger.begin(run_row(ledger, run_id=run_id, task_id=str(number)))
                ledger.record_event(event(run_id=run_id))
                ledger.finish(run_id, "done", metrics={"number": float(number)})
            code = 0
        finally:
            os._exit(code)
    children.append(child)
os.close(signal)
print([os.waitpid(child, 0)[1] for child in children])
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_ten_processes_on_a_new_database_lose_no_version_or_run(kind, home):
    output, _ = start(TEN, home.root).communicate(timeout=240)
    assert output.strip() == str([0] * 10)
    ledger = Ledger.open(home)
    assert ledger.versions()["partition_key"].to_list() == [SPEC.partition_key]
    assert len(ledger.tables()["specs"]) == 1
    runs = ledger.runs()
    assert sorted(runs["run_id"]) == ["contended", *(f"run-{number}" for number in range(10))]
    assert runs["status"].unique().to_list() == ["done"]
    assert ledger.run("contended").attempts == 10
    assert len(ledger.events("contended")) == 10


def test_this_process_is_alive():
    pid, started_at = this_process()
    assert pid == os.getpid()
    assert started_at < dt.datetime.now(dt.UTC)
    assert is_alive(pid, started_at)
    assert host_name()


def test_later_process_with_the_same_number_does_not_count():
    pid, started_at = this_process()
    assert not is_alive(pid, started_at - dt.timedelta(minutes=1))


def test_killed_process_is_dead_even_as_a_zombie():
    child = subprocess.Popen(["sleep", "60"])
    started_at = dt.datetime.fromtimestamp(psutil.Process(child.pid).create_time(), dt.UTC)
    assert is_alive(child.pid, started_at)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert not is_alive(child.pid, started_at)
    child.wait()
    assert not is_alive(child.pid, started_at)
