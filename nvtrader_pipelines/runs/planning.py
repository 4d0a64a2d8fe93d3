"""Plans of runs from registered specs and pinned panels, and their completed runs."""

import json
from datetime import date
from functools import cache, cached_property, partial

import polars as pl

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.replay import forward_plan, replay_plan
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.panels import pinned_snapshots, read_panel
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import REGIME_EVALUATION, STRESS, Table

TABLES_AFTER_VERDICT = (REGIME_EVALUATION, STRESS)  # may lack a run that has a verdict


def read_plan(store: Store, partition_key: str, snapshot_ids: dict[str, int] | None = None) -> RunPlan:
    """Plan the run of a registered experiment on the pinned or on given snapshots.

    Raises:
        StorageError: if the experiment is not registered, or its market has no panel.
        ValueError: if the bars do not make a panel, or no fold fits.
    """
    spec = store.ledger.read(partition_key)
    return RunPlan.of(spec, _panel(store, spec, snapshot_ids))


def find_sealed_run(store: Store, run_id: str) -> SealedRun:
    """Find a sealed run by a prefix of its id; for a replay or forward run, its parent.

    Raises:
        StorageError: if no run or several runs have this prefix, or a policy is missing.
    """
    run = store.ledger.find_run(run_id)
    return store.policies.read_sealed(run.partition_key, run.parent_run_id or run.run_id)


def reopen_plan(store: Store, run: SealedRun) -> RunPlan:
    """Plan a sealed run again on the snapshots it was trained on.

    Raises:
        StorageError: if its spec, snapshots or code now make another run.
    """
    plan = read_plan(store, run.partition_key, run.snapshot_ids)
    if plan.run_id != run.run_id:
        raise StorageError(
            f"the policies of {run.partition_key} were trained as run {run.run_id}, but its spec, market snapshots and "
            f"code now make run {plan.run_id}; run `nvtrader experiments run {plan.spec.name}` again"
        )
    return plan


def read_replay_plan(
    store: Store, parent: SealedRun, window: tuple[date, date] | None = None, snapshot_ids: dict[str, int] | None = None
) -> RunPlan:
    """Plan the replay of a sealed run over a window, on the pinned or on given snapshots.

    Raises:
        StorageError: if the experiment is not registered, or the market has no panel or lacks these snapshots.
        ValueError: if the window holds sessions its policies were trained on, or none.
    """
    spec = store.ledger.read(parent.partition_key)
    plan = replay_plan(spec, _panel(store, spec, snapshot_ids), parent.as_parent, window)
    if snapshot_ids == parent.snapshot_ids and plan.panel_digest != parent.panel_digest:
        raise StorageError(
            f"run {parent.run_id} was trained on the market {short_id(parent.panel_digest)}, but its snapshots give "
            f"{short_id(plan.panel_digest)} with the present code; replay it with code version {parent.code_version}"
        )
    return plan


def read_forward_plan(store: Store, parent: SealedRun) -> RunPlan:
    """Plan the forward run of a sealed run on the current market.

    Raises:
        StorageError: if the experiment is not registered, or the market has no panel.
        ValueError: if the market ends before the tests of the run.
    """
    spec = store.ledger.read(parent.partition_key)
    return forward_plan(spec, _panel(store, spec), parent.as_parent)


def _panel(store: Store, spec: ExperimentSpec, snapshot_ids: dict[str, int] | None = None) -> MarketPanel:
    market = spec.market
    return read_panel(store.tables, market.source, market.symbols, market.max_gap, snapshot_ids, market.features)


class JudgedRuns:
    """Judged runs of a home as of the first question; each table is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pinned = cache(partial(pinned_snapshots, store.tables))  # by source

    def current_run(self, partition_key: str) -> str | None:
        """Id of the experiment's intact judged run on the current market by this code, or None.

        Raises:
            StorageError: if the experiment is not registered, or its market has no panel.
            ValueError: if the bars do not make a panel, or no fold fits.
        """
        spec = self._store.ledger.read(partition_key)
        runs = self._runs.filter(pl.col("partition_key") == partition_key)
        pinned = json.dumps(self._pinned(spec.market.source), sort_keys=True)
        known = runs.filter(snapshot_ids=pinned, code_version=code_of(spec))["run_id"].to_list()
        run_id = known[0] if known else read_plan(self._store, partition_key).run_id
        is_judged = run_id in runs["run_id"]  # other snapshots may have the same rows
        return run_id if is_judged and self._store.policies.is_intact(partition_key, run_id) else None

    def missing_tables(self, run_id: str) -> list[Table]:
        """Tables without rows of a judged run that was interrupted after its verdict."""
        return [table for table in TABLES_AFTER_VERDICT if run_id not in self._run_ids[table]]

    @cached_property
    def _runs(self) -> pl.DataFrame:
        return walk_forward_runs(self._store)

    @cached_property
    def _run_ids(self) -> dict[Table, set[str]]:
        """Runs with rows, by table."""
        return {
            table: set(self._store.tables.read(table, columns=["run_id"])["run_id"]) for table in TABLES_AFTER_VERDICT
        }
