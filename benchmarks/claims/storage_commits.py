"""The thousandth commit of a table against its tenth."""

from importlib.metadata import version
from statistics import fmean, median
from time import perf_counter, process_time

import polars as pl

from benchmarks.claim import Goal, report
from benchmarks.storage_rows import SPEC_HASH, scratch_store, trajectories
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import TRAJECTORIES

N_COMMITS = 1_000
N_ROWS = 1_000
EARLY, LATE = slice(5, 15), slice(N_COMMITS - 100, N_COMMITS)  # about the tenth, and up to the last


def main() -> None:
    """Commit a run's rows a thousand times with the shipped settings and without upkeep."""
    rows = trajectories(N_ROWS)
    with scratch_store() as (_, store):
        wall, cpu = zip(*(_commit(store, rows, f"{i:016x}") for i in range(N_COMMITS)), strict=True)
        state, n_snapshots = store.tables.describe(TRAJECTORIES), len(store.tables.load(TRAJECTORIES).snapshots())
    assert state.n_rows == N_COMMITS * N_ROWS
    report(
        "storage_commits",
        median(wall[LATE]) * 1e3,
        "ms",
        Goal(ratio_at_most=1.5),
        ratio=median(cpu[LATE]) / median(cpu[EARLY]),
        note=f"wall clock of Warehouse.replace of {N_ROWS:,} rows of a new run, median of commits {N_COMMITS - 99} to "
        f"{N_COMMITS}; the ratio is that of their CPU time to that of commits 6 to 15 "
        f"({median(wall[LATE]) / median(wall[EARLY]):.2f} by wall clock); with expiry and merges, the mean CPU time of "
        f"the last hundred is {fmean(cpu[LATE]) / fmean(cpu[5:105]):.2f} of that of the first; {n_snapshots} snapshots "
        f"are left; pyiceberg {version('pyiceberg')}",
    )


def _commit(store: Store, rows: pl.DataFrame, run_id: str) -> tuple[float, float]:
    """Seconds of wall clock and of CPU of one commit."""
    own = rows.with_columns(run_id=pl.lit(run_id))
    start = perf_counter(), process_time()
    store.tables.replace(TRAJECTORIES, own, {"spec_hash": [SPEC_HASH], "run_id": [run_id]})
    return perf_counter() - start[0], process_time() - start[1]


if __name__ == "__main__":
    main()
