"""Rows of a run of a million steps over HTTP: seconds of a page and of a drawn curve, and memory of the service."""

import re
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import polars as pl
import psutil

from benchmarks.claim import Goal, report
from benchmarks.service_home import request_seconds, served
from benchmarks.storage_rows import RUN, RUN_ID, action_logs, equity_curves, reward_decomposition, trajectories
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.run_rows import RunRow
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, REWARD_DECOMPOSITION, TRAJECTORIES

N_STEPS, N_SESSIONS, N_REQUESTS = 1_000_000, 50_000, 10
TABLES = {
    TRAJECTORIES: trajectories(N_STEPS),
    EQUITY_CURVES: equity_curves(N_SESSIONS),
    ACTION_LOGS: action_logs(N_SESSIONS),
    REWARD_DECOMPOSITION: reward_decomposition(N_SESSIONS),
}
REQUESTS = {
    "first_page": "trajectories?limit=1000",
    "last_page": f"trajectories?limit=1000&after={N_STEPS - 1000}",
    "points": "trajectories?points=1000",
    "episodes": "episodes?limit=1000",
    "equity": "equity?points=1000",
    "rewards": "reward-decomposition?points=1000",
    "actions": "actions?points=1000",
}


def main() -> None:
    """Write two runs, then read the rows of one over HTTP."""
    with TemporaryDirectory(prefix="nvtrader-lab-", dir="/var/tmp") as folder:
        home = Home(Path(folder))
        _write_runs(Store(home))
        with served(home):
            request_seconds("/rl/runs")
            (service,) = psutil.Process().children()
            idle = service.memory_info().rss
            seconds = {
                name: [request_seconds(f"/rl/runs/{RUN_ID}/{path}") for _ in range(N_REQUESTS)]
                for name, path in REQUESTS.items()
            }
            peak = _peak_bytes(service.pid)
    for name, path in REQUESTS.items():
        report(
            f"lab_{name}",
            max(seconds[name]),
            "s",
            Goal(value_at_most=1.0),
            note=f"slowest of {N_REQUESTS} requests for {path} of a run of {N_STEPS:,} steps beside "
            f"another, median {median(seconds[name]):.2f} s",
        )
    report(
        "lab_memory",
        (peak - idle) / 2**20,
        "MB",
        Goal(value_at_most=300.0),
        note=f"highest memory of the service over all these requests, above {idle / 2**20:.0f} MB before",
    )


def _write_runs(store: Store) -> None:
    spec = ExperimentSpec(name="long")
    row = {"run_id": RUN_ID, "kind": "walk_forward", "spec_hash": spec.spec_hash}
    row |= {"partition_key": store.ledger.register(spec), "source": "sample", "panel_digest": "", "snapshot_ids": {}}
    store.ledger.begin(RunRow(**row, code_version="", seeds=(1,), task_id="", started_at=now()))
    store.ledger.finish(RUN_ID, "done")
    for table, rows in TABLES.items():
        store.tables.replace(table, rows, RUN)  # of a version of its own: the other run
        own = rows.with_columns(pl.lit(spec.spec_hash).alias("spec_hash"))
        store.tables.replace(table, own, {**RUN, "spec_hash": [spec.spec_hash]})


def _peak_bytes(pid: int) -> int:
    """Highest resident memory of a process so far."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) << 10


if __name__ == "__main__":
    main()
