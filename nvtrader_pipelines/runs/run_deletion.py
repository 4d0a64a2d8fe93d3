"""Deletion of the files and rows of a run, but not of what deflation reads from a trial."""

import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.runs.run_tables import WALK_FORWARD
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg.commits import Where
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import BY_RUN
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS, RUNS, TABLES, Table
from nvtrader_pipelines.storage.training_curve_file import curve_path

TRIAL_TABLES = (RUNS, EVALUATIONS)  # deflation reads them, besides the returns of the ensemble and the baselines


@dataclass(frozen=True)
class Deletion:
    """Files and rows that the deletion of a run removes, and whether it remains a trial."""

    run: LedgerRun
    n_files: int  # policies and checkpoints
    n_bytes: int
    rows: dict[str, int]  # by name of the table
    pictures: list[Path]  # folders of its version, if that has no other run
    is_trial: bool

    @property
    def is_empty(self) -> bool:
        """Whether the run is already deleted and nothing is left to delete."""
        return self.run.deleted_at is not None and not (self.n_files or self.rows or self.pictures)

    @property
    def remainder(self) -> str:
        """Description of the records that remain."""
        row = "its row, events and digests in the ledger"
        trial = ", its verdict and daily returns: it remains a trial, for which all results are deflated"
        return row + (trial if self.is_trial else "")


def plan_deletion(store: Store, run: LedgerRun, active_run_ids: Collection[str]) -> Deletion:
    """Find what the deletion of a run removes.

    Args:
        store: the store.
        run: the run.
        active_run_ids: runs of active policies.

    Raises:
        StorageError: if it is running, its policy is active, or replays or forward runs use its policies.
    """
    _require_deletable(store, run, active_run_ids)
    folder, is_trial = store.policies.folder(run.partition_key, run.run_id), _is_trial(run)
    files = [path for path in folder.rglob("*") if path.is_file()]
    rows = {table.name: len(store.tables.read(table, where, ["run_id"])) for table, where in _removed_rows(run).items()}
    others = store.ledger.runs(with_worlds=True).filter(
        pl.col("partition_key") == run.partition_key, pl.col("run_id") != run.run_id
    )
    pictures = sorted(store.home.pictures.glob(f"*/{run.partition_key}")) if others.is_empty() else []
    n_bytes = sum(path.stat().st_size for path in files)
    return Deletion(run, len(files), n_bytes, {name: n for name, n in rows.items() if n}, pictures, is_trial)


def delete_run(store: Store, deletion: Deletion, delete_tracked: Callable[[str], None]) -> None:
    """Delete a run; if the process is killed, a repeat finishes it.

    The ledger comes first, so that no list, ranking or promotion sees a run of which parts are missing.

    Args:
        store: the store.
        deletion: the plan.
        delete_tracked: deletes the MLflow runs of a run, by its id.

    Raises:
        StorageError: if it is running again.
    """
    run = store.ledger.mark_deleted(deletion.run.run_id)
    for table, where in _removed_rows(run).items():
        store.tables.replace(table, table.schema.to_frame(), where)
    store.policies.delete(run.partition_key, run.run_id)
    curve_path(store.home, run.run_id).unlink(missing_ok=True)
    for folder in deletion.pictures:
        shutil.rmtree(folder, ignore_errors=True)
    delete_tracked(run.run_id)


def _is_trial(run: LedgerRun) -> bool:
    return run.kind == WALK_FORWARD and run.status == "done"


def _removed_rows(run: LedgerRun) -> dict[Table, Where]:
    """Rows of a run to remove, by table; of a trial, all but those that deflation reads."""
    own = {"spec_hash": [run.spec_hash], "run_id": [run.run_id]}
    removed: dict[Table, Where] = {table: own for table in TABLES if table.partition_by == BY_RUN or table is RUNS}
    if _is_trial(run):
        removed = {table: where for table, where in removed.items() if table not in TRIAL_TABLES}
        removed[EQUITY_CURVES] = {**own, "kind": ["policy"]}
    return removed


def _require_deletable(store: Store, run: LedgerRun, active_run_ids: Collection[str]) -> None:
    name = f"run {short_id(run.run_id)} of {run.partition_key}"
    if run.status == "running":
        raise StorageError(f"{name} is running; stop it before it is deleted")
    if run.run_id in active_run_ids:
        raise StorageError(f"{name} has the active policy; activate another first: `nvtrader policies activate`")
    users = store.ledger.runs().filter(pl.col("parent_run_id") == run.run_id)["run_id"].to_list()
    if users:
        ids = ", ".join(map(short_id, users))
        raise StorageError(f"replays or forward runs use the policies of {name}: {ids}; delete them first")
