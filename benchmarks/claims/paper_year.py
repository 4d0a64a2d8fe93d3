"""A year on the sample market through `nvtrader trade`, compared with the back-test."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import yaml

from benchmarks.claim import Goal, report
from nvtrader_pipelines.storage.home import Home

NVTRADER = str(Path(sys.executable).with_name("nvtrader"))
YEAR = ("2018-01-01", "2018-12-31")
N_ROUNDS = 3
MAX_EQUITY_DIFFERENCE = 1e-12  # relative, of equity from the back-test
EXPERIMENT = {
    "name": "year",
    "agent": {"kind": "ppo", "total_timesteps": 10_240},
    "splitter": {"kind": "holdout", "train_first": "2005-01-01", "test_first": "2018-01-01", "test_last": YEAR[1]},
    "baselines": [{"kind": "equal_weight"}],
}


def main() -> None:
    """Train and activate a policy, then trade the year on a new account in every round."""
    with TemporaryDirectory(prefix="nvtrader-paper-", dir="/var/tmp") as folder:
        home = Home(Path(folder))
        home.experiments.mkdir(parents=True)
        (home.experiments / "year.yaml").write_text(yaml.safe_dump(EXPERIMENT))
        home.accounts.mkdir()
        for i in range(N_ROUNDS):
            (home.accounts / f"round-{i}.yaml").write_text("kind: simulated\n")
        _nvtrader(folder, "experiments", "run", "year")
        _nvtrader(folder, "policies", "activate", "year")
        seconds, summaries = zip(*(_replay_year(folder, f"round-{i}") for i in range(N_ROUNDS)), strict=True)
    first = summaries[0]
    report(
        "paper_year",
        median(seconds),
        "s",
        Goal(value_at_most=30.0),
        note=f"wall clock of the command from its start to its end, median of {N_ROUNDS} accounts; "
        f"{first['n_sessions']} sessions, 20 names, three seeds, {first['n_plans']} plans, {first['n_fills']} fills, "
        f"each event synced to disk, tables, views and picture written; equity differs from the back-test's by "
        f"{max(each['backtest']['largest_difference'] for each in summaries):.1g}",
    )


def _replay_year(folder: str, account: str) -> tuple[float, dict[str, Any]]:
    """Seconds of one year on a new account, and the JSON summary of the command."""
    start = perf_counter()
    summary = json.loads(_nvtrader(folder, "trade", "--account", account, "--from", YEAR[0], "--to", YEAR[1], "--json"))
    seconds = perf_counter() - start
    backtest = summary["backtest"]
    if not (backtest and backtest["largest_difference"] <= MAX_EQUITY_DIFFERENCE and summary["n_fills"]):
        raise AssertionError(f"the account did not trade or its equity differs from the back-test: {summary}")
    return seconds, summary


def _nvtrader(folder: str, *arguments: str) -> str:
    """Output of a command."""
    environment = {**os.environ, "NVTRADER_HOME": folder}
    return subprocess.run([NVTRADER, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
