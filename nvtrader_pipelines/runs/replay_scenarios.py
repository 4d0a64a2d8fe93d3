"""Stress test of a sealed run on the market it was trained on."""

from collections.abc import Generator

import polars as pl

from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.stress_run import StressRun, standard_stress_test, stressed_accounts
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RETURNS


def stress_run(store: Store, plan: RunPlan, run: SealedRun, task_id: str) -> Generator[Progress, None, pl.DataFrame]:
    """Walk a run's policies and baselines through every scenario; return the verdict table.

    Raises:
        StorageError: if the snapshot of the returns is missing, or a policy is missing or was changed.
    """
    returns = store.tables.read(RETURNS, {"source": [run.source]}, snapshot_id=run.snapshot_ids[RETURNS.name])
    contest = stressed_accounts(plan, store.policies.read_run(run), run.chosen, run.thresholds)
    return StressRun(plan, returns, contest, task_id, now).steps(standard_stress_test(plan.spec))
