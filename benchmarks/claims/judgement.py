"""Judgement of a sweep of 3, 10 and 50 runs, and of one additional run."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from time import perf_counter

import yaml

from benchmarks.claim import Goal, report
from nvtrader_pipelines.storage.home import Home

SIZES, ONE_MORE = (3, 10, 50), 51
EXPERIMENT = {
    "name": "sweep",
    "environment": {"lookback": 10, "vol_penalty": 0.0, "rewards": [{"kind": "log_growth"}]},
    "agent": {"kind": "ppo", "total_timesteps": 2048},
    "splitter": {"kind": "walk_forward", "first_test": "2007-01-01", "test_months": 96},
}


@dataclass(frozen=True)
class Cost:
    """Seconds of a command."""

    wall: float
    cpu: float  # with the processes it started and awaited


def main() -> None:
    """Run a sweep without judging it, then judge it; of one additional run, only that is new."""
    with tempfile.TemporaryDirectory(prefix="judgement-") as folder:
        found = {}
        for n_runs in (*SIZES, ONE_MORE):
            _write_sweep(Path(folder), n_runs)
            _run(folder, "--no-judge")
            if n_runs != ONE_MORE:
                rmtree(Home(Path(folder)).judgements, ignore_errors=True)
            found[n_runs] = _run(folder)
    costs = (f"{n} runs {found[n].wall:.1f} s ({found[n].cpu:.1f} s of CPU)" for n in SIZES)
    note = (
        "wall clock of `experiments run` when every run is trained and none is judged: the whole command, with two "
        "folds of three seeds per run, 13 years of contest, six stress scenarios and four baselines; "
        f"{', '.join(costs)}"
    )
    report("judgement_50", found[50].wall, "s", Goal(value_at_most=60.0), note=note)
    note = f"wall clock of the same command for one run on top of 50; {found[ONE_MORE].cpu:.1f} s of CPU"
    report("judgement_51st", found[ONE_MORE].wall, "s", Goal(value_at_most=15.0), note=note)


def _write_sweep(home: Path, n_runs: int) -> None:
    """Write the sweep's file with a discount rate per run."""
    values = [round(0.85 + 0.002 * i, 3) for i in range(n_runs)]
    path = home / "data" / "experiments" / "sweep.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    design = {"kind": "ablation", "field": "agent.gamma", "values": values}
    path.write_text(yaml.safe_dump({**EXPERIMENT, "design": design}))


def _run(home: str, *options: str) -> Cost:
    """Run the sweep of the home."""
    command = [Path(sys.executable).with_name("nvtrader"), "experiments", "run", "sweep", *options]
    before, began = os.times(), perf_counter()
    subprocess.run(command, env={**os.environ, "NVTRADER_HOME": home}, check=True, capture_output=True)
    after = os.times()
    cpu = (after.children_user + after.children_system) - (before.children_user + before.children_system)
    return Cost(perf_counter() - began, cpu)


if __name__ == "__main__":
    main()
