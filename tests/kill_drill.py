"""Drill of kill -9: commands are killed at random moments, and a rerun must give what an undisturbed home has.

`python -m tests.kill_drill 60 --seed 1` kills `ingest`, `experiments run`, `policies activate` and `trade` sixty times,
some of them twice, and prints a line per rerun. It ends with 1 if a rerun failed or its home differs; such homes stay
in the folder that is printed first. Sixty kills take half an hour on two cores.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.tables import SCORECARDS
from tests.homes import EXPERIMENT, NVTRADER, environment, nvtrader, small_home, table_contents, write_experiment

COMMANDS = {
    "ingest": ["ingest", "--json"],
    "run": ["experiments", "run", "tiny", "--json"],
    "activate": ["policies", "activate", "tiny", "--reason", "drill", "--json"],
    "trade": ["trade", "--from", "2017-06-01", "--to", "2017-07-14", "--json"],
}
CHANGES = {  # one short training
    "agent": {**EXPERIMENT["agent"], "total_timesteps": 2048},
    "splitter": {"kind": "holdout", "test_first": "2017-01-01"},
}
UNEQUAL = ("run_id", "active_run_id", "event_id", "promotion_id", "snapshot_ids", "chain", "at")  # ids and times
TIMES = ("_at", "_seconds")  # ends of names


def contents(home: Home) -> dict[str, str]:
    """Digests of the tables without `UNEQUAL` columns and times, and of the policies, by name."""
    found = {}
    for name, rows in table_contents(home).items():
        hidden = {*UNEQUAL, "digest"} if name == SCORECARDS.name else UNEQUAL  # a card's digest covers its time
        kept = [column for column in rows.columns if column not in hidden and not column.endswith(TIMES)]
        found[name] = sha256("\n".join(sorted(map(repr, rows.select(kept).iter_rows()))).encode()).hexdigest()
    for path in home.policies.rglob("*.zip"):
        found[path.name] = sha256(path.read_bytes()).hexdigest()
    return found


def kill_during(home: Home, arguments: list[str], seconds: float) -> bool:
    """Start a command, kill it and its processes after some seconds, and return whether it was still running."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen([NVTRADER, *arguments], env=environment(home), cwd=home.root.parent, **quiet)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    running = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return running


def build_stages(root: Path) -> tuple[dict[str, Home], dict[str, float]]:
    """Build the homes before each command and after the last one; return them and the seconds of each command."""
    home = small_home(root / "home")
    write_experiment(home, **CHANGES)
    stages, seconds = {}, {}
    for name, arguments in COMMANDS.items():
        stages[name] = copy(home, root / f"before-{name}")
        start = time.perf_counter()
        done = nvtrader(home, *arguments)
        seconds[name] = time.perf_counter() - start
        if done.returncode:
            sys.exit(f"`nvtrader {' '.join(arguments)}` failed without any kill: {done.stderr}")
    return {**stages, "end": home}, seconds


def copy(home: Home, root: Path) -> Home:
    """Copy a home to a folder that is emptied before."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(home.root, root, symlinks=True)
    return Home(root)


def differences(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Names of the tables and policies that differ."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def main() -> None:
    """Run the drill from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    root, generator = Path(tempfile.mkdtemp(prefix="kill-drill-")), random.Random(options.seed)
    print(f"homes are in {root}", flush=True)
    stages, seconds = build_stages(root)
    names = list(COMMANDS)
    expected = {name: contents(stages[after]) for name, after in zip(names, [*names[1:], "end"], strict=True)}
    kills = failed = number = 0
    while kills < options.kills:
        name = names[number % len(names)]
        home = copy(stages[name], root / f"rerun-{number}")
        moments = [generator.uniform(0.1, 1.0) * seconds[name] for _ in range(generator.choice([1, 1, 1, 2]))]
        hits = [moment for moment in moments if kill_during(home, COMMANDS[name], moment)]
        kills += len(hits)
        done, doctor = nvtrader(home, *COMMANDS[name]), nvtrader(home, "doctor")
        differing = differences(expected[name], contents(home))
        failed += bool(done.returncode or differing)
        moments_text = ", ".join(f"{hit:.1f} s" for hit in hits) or "never: it had ended"
        verdict = f"differs: {', '.join(differing)}" if differing else "equal"
        print(
            f"{kills} {name} killed at {moments_text}; rerun {done.returncode}, doctor {doctor.returncode}, {verdict}"
        )
        print(done.stderr[-500:] if done.returncode else "", end="", flush=True)
        if not (done.returncode or differing):
            shutil.rmtree(home.root)
        number += 1
    print(f"{kills} kills in {number} reruns, {failed} of them failed or differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
