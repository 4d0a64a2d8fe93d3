"""Drill of kill -9: commands killed at random moments must give equal homes when run again.

`python -m tests.kill_drill 60 --seed 1` kills `ingest`, `experiments run`, `policies activate` and `trade` sixty times,
some of them twice, alone or with the processes that they started, and prints a line per rerun. Tables, policy files and
the exit code of `doctor` must equal those of an undisturbed home, or the drill ends with 1; other homes stay in the
folder that is printed first. Sixty kills take half an hour on two cores. `--aim mlflow` kills only first runs of an
experiment, when MLflow's database has grown to a random part of its size. `--aim servers` kills `ui` and
`serve --with-ui`, or closes their terminal, at so many moments each: nothing may run 5 s later, and the next starts.
"""

import argparse
import contextlib
import fcntl
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import psutil

from nvtrader_pipelines.orchestration.ui_processes import is_listening
from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.home import Home
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
UNEQUAL = ("event_id", "promotion_id", "snapshot_ids", "chain", "at")  # columns with a time or an id made from one
TIMES = ("_at", "_seconds")  # ends of names
AIMS = {"mlflow": ["ingest", "run"]}  # commands up to the one that is killed
MLFLOW_BYTES = 950_000  # size of a new database of MLflow
SERVERS = {"ui": ["ui"], "serve": ["serve", "--with-ui", "--no-browser", "--port", "8765"]}
START_SECONDS = 8.0  # of moments during a start; where the machine is quiet, servers listen by then
LATER_SECONDS, PATIENCE_SECONDS, LIMIT_SECONDS = 3.0, 180.0, 5.0


def contents(home: Home) -> dict[str, str]:
    """Digests of the tables without times, of the policy files, and the exit code of `doctor`."""
    found = {"doctor": str(nvtrader(home, "doctor").returncode)}
    for name, rows in table_contents(home).items():
        columns = [column for column in rows.columns if column not in UNEQUAL and not column.endswith(TIMES)]
        found[name] = sha256("\n".join(sorted(map(repr, rows.select(columns).iter_rows()))).encode()).hexdigest()
    for path in home.policies.rglob("*.*"):
        found[str(path.relative_to(home.policies))] = sha256(path.read_bytes()).hexdigest()
    return found


def mlflow_bytes(home: Home) -> int:
    """Size of MLflow's database, made in place or aside."""
    with contextlib.suppress(FileNotFoundError):  # renamed just now
        return max((path.stat().st_size for path in home.mlflow.glob("*mlflow.db*")), default=0)
    return 0


def kill_during(home: Home, arguments: list[str], seconds: float, *, alone: bool, n_bytes: int = 0) -> bool:
    """Kill a command some seconds after MLflow's database has a size, with its processes unless alone.

    Returns:
        Whether the command was running.
    """
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen([NVTRADER, *arguments], env=environment(home), cwd=home.root.parent, **quiet)
    while process.poll() is None and mlflow_bytes(home) < n_bytes:
        time.sleep(0.002)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    running = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        (os.kill if alone else os.killpg)(process.pid, signal.SIGKILL)
    process.wait()
    return running


def run_again(home: Home, arguments: list[str]) -> str:
    """Problem of running a command to its end; an empty text if there is none."""
    try:
        done = nvtrader(home, *arguments)
    except subprocess.TimeoutExpired as error:
        return str(error)
    return f"exit code {done.returncode}: {done.stderr[-500:]}" if done.returncode else ""


def build_stages(root: Path, names: list[str]) -> tuple[dict[str, Home], dict[str, float]]:
    """Build the homes before each command and at the end; return them and the seconds of each."""
    home = small_home(root / "home")
    write_experiment(home, **CHANGES)
    stages, seconds = {}, {}
    for name in names:
        stages[name] = copy(home, root / f"before-{name}")
        start = time.perf_counter()
        if problem := run_again(home, COMMANDS[name]):
            sys.exit(f"`nvtrader {' '.join(COMMANDS[name])}` failed without any kill: {problem}")
        seconds[name] = time.perf_counter() - start
    return {**stages, "end": home}, seconds


def copy(home: Home, root: Path) -> Home:
    """Copy a home to a new folder."""
    shutil.copytree(home.root, root, symlinks=True)
    return Home(root)


def processes_of(home: Home) -> list[psutil.Process]:
    """Live processes that work on a home."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_live = process.status() != psutil.STATUS_ZOMBIE
            if is_live and process.environ().get("NVTRADER_HOME") == str(home.root):
                found.append(process)
    return found


def is_serving(home: Home) -> bool:
    """Whether a UI of a home listens."""
    url = running_url(home.dagster)
    return bool(url) and is_listening(int(url.rpartition(":")[2]))


def _take_terminal() -> None:
    """Make stdin the terminal of this session, and let its end be noticed even under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def end_servers(home: Home, name: str, *, is_closed: bool, seconds: float, is_late: bool) -> str:
    """Start servers in a terminal, close it or kill them, and return the problem; an empty text if there is none."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [NVTRADER, *SERVERS[name]],
        env=environment(home),
        stdin=end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509 - the drill has no threads
    )
    os.close(end)
    limit = time.monotonic() + PATIENCE_SECONDS
    while is_late and process.poll() is None and time.monotonic() < limit and not is_serving(home):
        time.sleep(0.1)
    time.sleep(seconds)
    problem = "" if process.poll() is None and is_serving(home) >= is_late else "it did not start"
    if not is_closed:
        process.kill()
    os.close(terminal)
    limit = time.monotonic() + LIMIT_SECONDS
    while (left := processes_of(home)) and time.monotonic() < limit:
        time.sleep(0.1)
    for each in left:
        problem += f" {each.pid} is left"
        each.kill()
    process.wait()
    return problem


def drill_servers(home: Home, kills: int, generator: random.Random) -> Iterator[str]:
    """End servers during a start and after the next one, in turn; yield a line each, with the problem."""
    for number in range(kills):
        for name in SERVERS:
            for is_closed in (False, True):
                is_late = number % 2 == 1
                seconds = generator.uniform(0.0, LATER_SECONDS if is_late else START_SECONDS)
                problem = end_servers(home, name, is_closed=is_closed, seconds=seconds, is_late=is_late)
                how, when = "closed" if is_closed else "killed", "listening" if is_late else "starting"
                yield f"{name} {how} {seconds:.1f} s after {when}; {problem or 'nothing is left'}"


def main() -> None:
    """Run the drill from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--aim", choices=[*AIMS, "servers"])
    options = parser.parse_args()
    root, generator = Path(tempfile.mkdtemp(prefix="kill-drill-")), random.Random(options.seed)
    print(f"homes are in {root}", flush=True)
    if options.aim == "servers":
        home = small_home(root / "home")
        (home.landing / "prices.csv").unlink()  # nothing for a sensor to run
        problems = 0
        for line in drill_servers(home, options.kills, generator):
            print(line, flush=True)
            problems += not line.endswith("nothing is left")
        sys.exit(problems > 0)
    names = AIMS.get(options.aim, list(COMMANDS))
    stages, seconds = build_stages(root, names)
    expected = {name: contents(stages[after]) for name, after in zip(names, [*names[1:], "end"], strict=True)}
    names = names[-1:] if options.aim else names
    kills = failed = number = 0
    while kills < options.kills:
        name = names[number % len(names)]
        home = copy(stages[name], root / f"rerun-{number}")
        hits = []
        for _ in range(1 if options.aim else generator.choice([1, 1, 1, 2])):
            share, alone = generator.uniform(0.1, 1.0), generator.random() < 0.5
            moment, n_bytes = (0.0, int(share * MLFLOW_BYTES)) if options.aim else (share * seconds[name], 0)
            if kill_during(home, COMMANDS[name], moment, alone=alone, n_bytes=n_bytes):
                at = f"{n_bytes} bytes" if options.aim else f"{moment:.1f} s"
                hits.append(f"{at}{' alone' if alone else ''}")
        kills += len(hits)
        problem, found = run_again(home, COMMANDS[name]), contents(home)
        different = sorted(key for key in expected[name].keys() | found if expected[name].get(key) != found.get(key))
        verdict = problem or (f"different: {', '.join(different)}" if different else "equal")
        print(f"{kills} {name} killed at {', '.join(hits) or 'no moment: it had ended'}; {verdict}", flush=True)
        failed += verdict != "equal"
        if verdict == "equal":
            shutil.rmtree(home.root)
        number += 1
    print(f"{kills} kills in {number} reruns, {failed} of them failed or differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
