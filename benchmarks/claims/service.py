"""The service: its start, its lists on a home of many runs, and what its readers cost a training."""

import json
import threading
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from benchmarks.claim import Goal, report
from benchmarks.service_home import N_RUNS, RULE, URL, build_home, request_seconds, send, served
from nvtrader_pipelines.storage.home import Home

N_CLIENTS, N_STARTS, N_REQUESTS, N_ROUNDS = 20, 7, 40, 3
LISTS = (
    "/rl/runs",
    "/api/nemorl/ratio-curve",
    "/api/nemorl/policies",
    "/api/nemorl-autoresearch/sessions",
    "/api/plans",
    "/api/scoreboard",
)
READS = ("/api/nemorl/status", "/rl/runs", "/api/nemorl/policies", "/api/scoreboard", "/api/portfolio")
TIMESTEPS = 122_880
TRAINED = {**RULE, "agent": {"kind": "ppo", "total_timesteps": TIMESTEPS}, "seeds": [0, 1, 2]}


def main() -> None:
    """Build a home of many runs, then measure the service on it."""
    with TemporaryDirectory(prefix="nvtrader-service-") as folder:
        home = Home(Path(folder))
        build_home(home)
        starts = []
        for _ in range(N_STARTS):
            with served(home) as seconds:
                starts.append(seconds)
        with served(home):
            first = {path: request_seconds(path) for path in LISTS}
            kept = {path: median(request_seconds(path) for _ in range(N_REQUESTS)) for path in LISTS}
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


def _training_seconds(number: int, *, clients: int) -> float:
    """Seconds from the first to the last step of a training, beside clients that read."""
    stop = threading.Event()
    readers = [threading.Thread(target=_read, args=(stop, place / N_CLIENTS)) for place in range(clients)]
    for reader in readers:
        reader.start()
    send("/rl/experiments", {"name": f"trained-{number}", "description": f"{number}", **TRAINED})
    task = send("/rl/runs", {"kind": "train", "experiment": f"trained-{number}"})["task_id"]
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
        request_seconds(READS[turn % len(READS)])
        turn += 1


if __name__ == "__main__":
    main()
