"""The service: its start, its lists on a home of many runs, and what its readers cost a training."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import polars as pl

from benchmarks.claim import Goal, report
from nvtrader_pipelines.market.calendar import sessions
from nvtrader_pipelines.storage.home import VARIABLE, Home

PORT, TOKEN = 8917, "benchmark"
URL = f"http://127.0.0.1:{PORT}"
N_RUNS, N_CLIENTS, N_STARTS, N_REQUESTS, N_ROUNDS = 50, 20, 7, 40, 3
LISTS = (
    "/rl/runs",
    "/api/nemorl/ratio-curve",
    "/api/nemorl/policies",
    "/api/nemorl-autoresearch/sessions",
    "/api/plans",
    "/api/scoreboard",
)
READS = ("/api/nemorl/status", "/rl/runs", "/api/nemorl/policies", "/api/scoreboard", "/api/portfolio")
RULE = {
    "market": {"source": "landing"},
    "agent": {"kind": "momentum"},
    "splitter": {"kind": "holdout", "test_first": "2017-01-01"},
    "baselines": [{"kind": "equal_weight"}],
}
TIMESTEPS = 122_880
TRAINED = {**RULE, "agent": {"kind": "ppo", "total_timesteps": TIMESTEPS}, "seeds": [0, 1, 2]}


def main() -> None:
    """Build a home of many runs, then measure the service on it."""
    with TemporaryDirectory(prefix="nvtrader-service-") as folder:
        home = Home(Path(folder))
        _build(home)
        starts = []
        for _ in range(N_STARTS):
            with _served(home) as seconds:
                starts.append(seconds)
        with _served(home):
            first = {path: _seconds(path) for path in LISTS}
            kept = {path: median(_seconds(path) for _ in range(N_REQUESTS)) for path in LISTS}
            pairs = [
                (_training_seconds(2 * n, clients=0), _training_seconds(2 * n + 1, clients=N_CLIENTS))
                for n in range(N_ROUNDS)
            ]
    report(
        "service_start",
        median(starts),
        "s",
        Goal(value_at_most=2.5),
        note=f"wall time from `nvtrader serve` to its first answer, median of {N_STARTS} starts",
    )
    slowest = max(kept, key=kept.__getitem__)
    report(
        "service_lists",
        1000 * kept[slowest],
        "ms",
        Goal(value_at_most=50.0),
        note=f"slowest of {len(LISTS)} lists ({slowest}) on a home of {N_RUNS} runs, median of {N_REQUESTS} requests; "
        f"the first answers, read from the home, took {', '.join(f'{1000 * s:.0f}' for s in first.values())} ms",
    )
    alone, beside = (median(times) for times in zip(*pairs, strict=True))
    report(
        "service_readers",
        beside,
        "s",
        Goal(ratio_at_most=1.05),
        ratio=median(after / before for before, after in pairs),
        note=f"wall time of a training of 3 seeds by {TIMESTEPS:,} steps on a home of {N_RUNS} runs, "
        f"beside {N_CLIENTS} clients at a request a second each; ratio: to the same without clients ({alone:.1f} s), "
        f"median of {N_ROUNDS} pairs",
    )


def _build(home: Home) -> None:
    """Write a market of three names and as many rules as runs, and run them."""
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    home.market_file.write_text("sources:\n  - kind: landing\n")
    days = sessions(date(2015, 1, 2), date(2017, 12, 29))
    draw = np.random.default_rng(0)
    parts = []
    for name in ("AAA", "BBB", "CCC"):
        close = 100.0 * np.exp(np.cumsum(draw.normal(0.0003, 0.01, len(days))))
        prices = {"open": close, "high": 1.01 * close, "low": 0.99 * close, "close": close, "volume": 1e6}
        parts.append(pl.DataFrame({"date": days, "symbol": name, **prices}))
    pl.concat(parts).write_csv(home.landing / "prices.csv")
    for number in range(N_RUNS):
        spec = {"name": f"rule-{number}", **RULE, "environment": {"lookback": 5 + number % 50}}
        (home.experiments / f"rule-{number}.yaml").write_text(json.dumps(spec))
    subprocess.run([_command(), "materialize"], env=_environment(home), stdout=subprocess.DEVNULL, check=True)


@contextmanager
def _served(home: Home) -> Iterator[float]:
    """Serve a home, and yield the seconds to the first answer."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [_command(), "serve", "--port", str(PORT)], env=_environment(home), stdout=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                _seconds("/api/kill-switch")
                break
            except OSError:
                time.sleep(0.02)
        yield time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def _training_seconds(number: int, *, clients: int) -> float:
    """Seconds from the first to the last step of a training, beside clients that read."""
    stop = threading.Event()
    readers = [threading.Thread(target=_read, args=(stop, place / N_CLIENTS)) for place in range(clients)]
    for reader in readers:
        reader.start()
    _ask("/rl/experiments", {"name": f"trained-{number}", "description": f"{number}", **TRAINED})
    task = _ask("/rl/runs", {"kind": "train", "experiment": f"trained-{number}"})["task_id"]
    times = []
    with urlopen(f"{URL}/chat/stream/{task}") as lines:
        for line in lines:
            if line.startswith(b"data: "):
                message = json.loads(line.removeprefix(b"data: "))
                if message["stage"] in {"agent.built", "train.step", "train.checkpoint"}:
                    times.append(datetime.fromisoformat(message["timestamp"]))
    stop.set()
    for reader in readers:
        reader.join()
    return (times[-1] - times[0]).total_seconds()


def _read(stop: threading.Event, delay: float) -> None:
    """Read one of the routes each second."""
    stop.wait(delay)
    turn = 0
    while not stop.wait(1.0):
        _seconds(READS[turn % len(READS)])
        turn += 1


def _seconds(path: str) -> float:
    began = time.perf_counter()
    with urlopen(URL + path) as answer:
        answer.read()
    return time.perf_counter() - began


def _ask(path: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with urlopen(Request(URL + path, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


def _environment(home: Home) -> dict[str, str]:
    return {**os.environ, VARIABLE: str(home.root), "NVTRADER_TOKEN": TOKEN}


def _command() -> Path:
    return Path(sys.executable).with_name("nvtrader")


if __name__ == "__main__":
    main()
