"""CPU time of the commands that only list, and of a run with nothing to do."""

import os
import resource
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from benchmarks.claim import Goal, report
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.storage.home import VARIABLE, Home

N_ROUNDS = 5
NAMES = ("AAA", "BBB", "CCC")
EXPERIMENT = """name: momentum
market: {source: landing}
agent: {kind: momentum}
environment: {lookback: 5}
splitter: {kind: holdout, test_first: 2017-01-01}
baselines: [{kind: equal_weight}]
"""
RUN = "experiments run momentum"
COMMANDS = {  # name to command and largest CPU seconds
    "help": ("--help", 0.25),
    "sql": ("sql 'SELECT 1'", 0.5),
    "plans": ("plans", 0.8),
    "runs": ("runs", 0.8),
    "scoreboard": ("scoreboard", 0.8),
    "experiments": ("experiments list", 0.8),
    "policies": ("policies list", 0.8),
    "portfolio": ("portfolio", 0.8),
    "nothing_to_do": (RUN, 1.5),
}
ACTIVATE = "policies activate momentum --reason benchmark"


def main() -> None:
    """Run one experiment in a new home, then measure each command in turn."""
    commands = {name: command for name, (command, _) in COMMANDS.items()}
    with TemporaryDirectory(prefix="nvtrader-commands-") as folder:
        home = Home(Path(folder))
        _write_home(home)
        for command in (RUN, ACTIVATE, *commands.values()):  # builds, compiles and publishes
            _cpu_seconds(home, command)
        rounds = [{name: _cpu_seconds(home, command) for name, command in commands.items()} for _ in range(N_ROUNDS)]
    for name, (command, most) in COMMANDS.items():
        report(
            f"command_{name}",
            median(seconds[name] for seconds in rounds),
            "s",
            Goal(value_at_most=most),
            note=f"user and system time of `nvtrader {command}`, median of {N_ROUNDS} processes, on a home with one "
            "run and its active policy",
        )


def _write_home(home: Home) -> None:
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    home.market_file.write_text("sources:\n  - kind: landing\n")
    (home.experiments / "momentum.yaml").write_text(EXPERIMENT)
    days = NEW_YORK.sessions(date(2015, 1, 2), date(2017, 12, 29))
    draw = np.random.default_rng(0)
    parts = []
    for name in NAMES:
        close = 100.0 * np.exp(np.cumsum(draw.normal(0.0003, 0.01, len(days))))
        prices = {"open": close, "high": 1.01 * close, "low": 0.99 * close, "close": close, "volume": 1e6}
        parts.append(pl.DataFrame({"date": days, "symbol": name, **prices}))
    pl.concat(parts).write_csv(home.landing / "prices.csv")


def _cpu_seconds(home: Home, command: str) -> float:
    """User and system seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    nvtrader = Path(sys.executable).with_name("nvtrader")
    environment = {**os.environ, VARIABLE: str(home.root)}
    subprocess.run([nvtrader, *shlex.split(command)], env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
