"""CPU seconds of the tests by folder, beside the budgets of `pyproject.toml`; a slower machine has larger ones."""

import os
import tempfile
import time
import tomllib
from collections import defaultdict
from itertools import count
from multiprocessing import forkserver
from pathlib import Path
from statistics import mean

import psutil
import pytest

FILE = "NVTRADER_CPU_SECONDS"  # names the file to which all processes of a session add what they spent
TOLERANCE = 1.1
INTERVAL = 60  # tests between two measurements of the machine, which is slower where it does other work, too
SOURCE = "\n".join(f"def f{i}(a, b={i}):\n    return [a + x for x in range({i}) if x != b]" for i in range(500))
SHARE = pytest.StashKey[float]()  # of the budget that was spent
numbers = count()  # of the tests of this process
spent: dict[str, float] = defaultdict(float)  # by this process, by module


def cpu_seconds() -> float:
    """CPU seconds of this process, its children that have ended, and the workers of its fork server."""
    server = forkserver._forkserver._forkserver_pid
    return sum(os.times()[:4]) + (sum(psutil.Process(server).cpu_times()[:4]) if server else 0.0)


def add_seconds(test: str, seconds: float) -> None:
    """Add what a test spent, by its id, to the folder of the test."""
    if path := os.environ.get(FILE):
        parts = test.partition("::")[0].split("/")
        with Path(path).open("a") as file:
            file.write(f"{parts[1] if len(parts) > 2 else parts[0]} {seconds}\n")


def measure_machine() -> None:
    """Add the seconds that this machine takes for a fixed piece of work."""
    began = time.process_time()
    compile(SOURCE, "reference", "exec")
    add_seconds("reference", time.process_time() - began)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-seconds", action="store_true", help="compare the CPU seconds of the tests with their budget"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.cpu_seconds and not hasattr(config, "workerinput"):
        os.environ[FILE] = tempfile.mkstemp(suffix=".txt")[1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Count the CPU seconds of a test with those of its fixtures."""
    before = cpu_seconds()
    outcome = yield
    spent[item.nodeid.partition("::")[0]] += cpu_seconds() - before
    if next(numbers) % INTERVAL == 0:
        measure_machine()
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session):
    """Tell what this process spent; the process that distributes the tests fails where CI spends too much."""
    for module, seconds in spent.items():
        add_seconds(module, seconds)
    add_seconds("collection", cpu_seconds() - sum(spent.values()))
    outcome = yield  # prints the summary
    if os.environ.get("CI") and session.config.stash.get(SHARE, 0.0) > TOLERANCE and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return outcome


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a line per folder."""
    if not config.option.cpu_seconds:
        return
    values: dict[str, list[float]] = defaultdict(list)
    for line in Path(os.environ[FILE]).read_text().splitlines():
        folder, value = line.split()
        values[folder].append(float(value))
    settings = tomllib.loads((config.rootpath / "pyproject.toml").read_text())["tool"]["cpu-seconds"]
    pace = mean(values.pop("reference")) / settings["reference"]
    seconds = {folder: sum(values[folder]) / pace for folder in sorted(values, key=lambda name: -sum(values[name]))}
    budgets = settings["folders"]
    config.stash[SHARE] = sum(seconds.values()) / sum(budgets.values())
    terminalreporter.section(f"CPU seconds beside the budgets; this machine took {pace:.2f} times as many")
    rows = [(folder, seconds[folder], budgets.get(folder, 0.0)) for folder in seconds]
    for name, value, budget in [*rows, ("all", sum(seconds.values()), sum(budgets.values()))]:
        over = f" {100.0 * value / budget - 100.0:+.0f} %" if budget and value > budget else ""
        terminalreporter.write_line(f"{name:16}{value:8.1f} of {budget:6.1f}{over}")
