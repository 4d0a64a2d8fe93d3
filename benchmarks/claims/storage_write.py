"""A million trajectory steps into Iceberg, against the same rows as a Parquet file."""

from importlib.metadata import version
from statistics import median
from time import process_time

import pyarrow.parquet as pq

from benchmarks.claim import Goal, median_ratio, report, time_rounds
from benchmarks.storage_rows import N_NAMES, RUN, scratch_store, trajectories
from nvtrader_pipelines.storage.tables import TRAJECTORIES

N_STEPS = 1_000_000
BATCH = 100_000
N_ROUNDS = 5


def main() -> None:
    """Report checked, synced and committed writes against `pq.write_table` alone."""
    rows = trajectories(N_STEPS)
    table = rows.to_arrow()
    with scratch_store() as (folder, store):
        implementations = {
            "plain": lambda _: pq.write_table(table, folder / "plain.parquet", compression="zstd"),
            "at_once": lambda _: store.tables.replace(TRAJECTORIES, rows, RUN),
            "in_batches": lambda _: store.tables.replace(TRAJECTORIES, rows.iter_slices(BATCH), RUN),
        }
        wall = time_rounds(implementations, N_ROUNDS)
        cpu = time_rounds(implementations, 2, clock=process_time)
        assert store.tables.read(TRAJECTORIES, RUN).equals(rows)
    for name in ("at_once", "in_batches"):
        report(
            f"storage_write_{name}",
            N_STEPS / median(wall[name]),
            "steps/s",
            Goal(ratio_at_least=0.7),
            ratio=median_ratio(wall, "plain", name),
            note=f"wall clock of {N_STEPS:,} steps of {N_NAMES} names ({table.nbytes / 1e6:.0f} MB of Arrow) written "
            f"{name.replace('_', ' ')} by Warehouse.replace: checked, synced and committed in place of the rows "
            f"before, against pq.write_table(compression='zstd') of pyarrow {version('pyarrow')}, not synced; median "
            f"of {N_ROUNDS} rounds in turn; by CPU time the ratio is {median_ratio(cpu, 'plain', name):.2f}",
        )


if __name__ == "__main__":
    main()
