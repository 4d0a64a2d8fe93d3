"""The service as a process: start, signals and ends."""

import json
import os
import signal
import sqlite3
import time
from contextlib import ExitStack
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest

from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home, nvtrader
from tests.service.api.conftest import TOKEN
from tests.service.api.servers import served


def service_on(url):
    """Process that listens on the port of a URL."""
    port = int(url.rpartition(":")[2])
    (pid,) = {each.pid for each in psutil.net_connections() if each.laddr.port == port and each.status == "LISTEN"}
    return pid


def test_service_lets_in_by_its_link_and_ends_quick_and_silent(built_home, fast_nvtrader):
    store = Store(built_home)
    task = store.ledger.run(store.ledger.runs()["run_id"][0]).task_id
    with served(built_home, command=fast_nvtrader) as (process, url, line), ExitStack() as stack:
        assert line.startswith(f"{url}/?token={TOKEN}")
        with urlopen(f"{url}/?token={TOKEN}", timeout=10) as answer:
            assert answer.url == f"{url}/continuous-rl.html"
        with pytest.raises(HTTPError) as wrong:
            urlopen(f"{url}/?token=other", timeout=10)
        with wrong.value as refused:
            assert refused.code == 401
        streams = [stack.enter_context(urlopen(f"{url}/chat/stream/{task}", timeout=10)) for _ in range(20)]
        first = [stream.readline() for stream in streams]
        began = time.monotonic()
        os.kill(service_on(url), signal.SIGTERM)
        output = "".join(process.communicate(timeout=10))
        seconds = time.monotonic() - began
    assert len(first) == 20
    assert (process.returncode, output) == (0, "")  # the token is not in the log
    assert seconds < 5  # 1 s where the machine is quiet


def test_port_that_is_taken_is_one_sentence(built_home, fast_nvtrader):
    with served(built_home, command=fast_nvtrader) as (_, url, _):
        again = nvtrader(built_home, "serve", "--port", url.rpartition(":")[2], command=fast_nvtrader)
    assert again.returncode == 3
    assert again.stderr.count("\n") == 1
    assert "in use" in again.stderr


def test_run_whose_process_was_killed_is_closed(built_home, tmp_path, fast_nvtrader):
    home = copy_home(built_home, tmp_path / "home")
    store = Store(home)
    run = store.ledger.run(store.ledger.runs()["run_id"][0])
    with sqlite3.connect(home.ledger) as ledger:
        ledger.execute("UPDATE runs SET status = 'running', pid = 1 WHERE run_id = ?", [run.run_id])
    with served(home, command=fast_nvtrader) as (_, url, _):
        for _ in range(100):
            with urlopen(f"{url}/rl/runs", timeout=10) as answer:
                (row,) = [row for row in json.load(answer) if row["run_id"] == run.run_id]
            if row["status"] != "running":
                break
            time.sleep(0.1)
    assert row["status"] == "interrupted"


@pytest.mark.nightly
def test_ui_beside_the_service_begins_and_ends_with_it(built_home, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    with served(home, "--with-ui") as (process, _, _):
        end = time.monotonic() + 120
        while not running_url(home.dagster) and time.monotonic() < end:
            time.sleep(0.2)
        assert running_url(home.dagster)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert not running_url(home.dagster)
