"""CPU seconds of the tests by folder beside the budgets of `pyproject.toml`; on a slower machine these are larger."""

import os
import tempfile
import time
import tomllib
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

FILE = "NVTRADER_CPU_SECONDS"  # names the file to which all processes of a session add what they spent
TOLERANCE = 1.1
SOURCE = "\n".join(f"def f{i}(a, b={i}):\n    return [a + x for x in range({i}) if x != b]" for i in range(500))
spent: Counter[str] = Counter()  # by this process


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
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session):
    """Tell what this process spent; the process that distributes the tests fails where CI spends too much."""
    if not session.config.option.cpu_seconds:
        return (yield)
    for module, seconds in spent.items():
        add_seconds(module, seconds)
    add_seconds("collection", cpu_seconds() - spent.total())
    outcome = yield  # prints the summary
    if os.environ.get("CI") and session.config.stash.get(EXCESS, 0.0) > TOLERANCE and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return outcome


EXCESS = pytest.StashKey[float]()  # share of the budget that was spent


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a line per folder."""
    if not config.option.cpu_seconds:
        return
    seconds: Counter[str] = Counter()
    for line in Path(os.environ[FILE]).read_text().splitlines():
        folder, value = line.split()
        seconds[folder] += float(value)
    settings = tomllib.loads((config.rootpath / "pyproject.toml").read_text())["tool"]["cpu-seconds"]
    speed = reference_seconds() / settings["reference"]
    budgets = {folder: speed * budget for folder, budget in settings["folders"].items()}
    config.stash[EXCESS] = seconds.total() / sum(budgets.values())
    terminalreporter.section(f"CPU seconds; this machine takes {speed:.2f} times as long as that of the budget")
    for folder, value in [*seconds.most_common(), ("all", seconds.total())]:
        budget = budgets.get(folder, 0.0) if folder != "all" else sum(budgets.values())
        terminalreporter.write_line(f"{folder:16}{value:8.1f} of {budget:6.1f}{' over' * (value > TOLERANCE * budget)}")


def reference_seconds() -> float:
    """Seconds that this machine takes for a fixed piece of work."""
    seconds = []
    for _ in range(39):
        began = time.process_time()
        compile(SOURCE, "reference", "exec")
        seconds.append(time.process_time() - began)
    return sorted(seconds)[19]
