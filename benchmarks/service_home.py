"""Home of many runs, and the service of a home as a process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import polars as pl

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.storage.home import VARIABLE, Home

PORT, TOKEN = 8917, "benchmark"
URL = f"http://127.0.0.1:{PORT}"
N_RUNS = 50
RULE = {
    "market": {"source": "landing"},
    "agent": {"kind": "momentum"},
    "splitter": {"kind": "holdout", "test_first": "2017-01-01"},
    "baselines": [{"kind": "equal_weight"}],
}


def build_home(home: Home) -> None:
    """Write a market of three names and as many rules as runs, and run them."""
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    home.market_file.write_text("sources:\n  - kind: landing\n")
    days = NEW_YORK.sessions(date(2015, 1, 2), date(2017, 12, 29))
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
def served(home: Home) -> Iterator[float]:
    """Serve a home, and yield the seconds to the first answer."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [_command(), "serve", "--port", str(PORT)], env=_environment(home), stdout=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                request_seconds("/api/kill-switch")
                break
            except OSError:
                time.sleep(0.02)
        yield time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def request_seconds(path: str) -> float:
    """Seconds of a request."""
    began = time.perf_counter()
    with urlopen(URL + path) as answer:
        answer.read()
    return time.perf_counter() - began


def send(path: str, body: Any) -> Any:
    """Send a body and return the answer."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with urlopen(Request(URL + path, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


def _environment(home: Home) -> dict[str, str]:
    return {**os.environ, VARIABLE: str(home.root), "NVTRADER_TOKEN": TOKEN}


def _command() -> Path:
    return Path(sys.executable).with_name("nvtrader")
