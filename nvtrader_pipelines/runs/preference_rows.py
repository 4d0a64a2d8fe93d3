"""Preference pairs of a sealed run: compare its proposals by their outcomes and store them."""

from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.preferences.pairs import preference_pairs
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.run_tables import read_run, replace_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, PREFERENCE_PAIRS


@dataclass(frozen=True)
class PairCounts:
    """Number of preference pairs of a run."""

    n_pairs: int
    n_held_out: int
    n_won: int  # pairs in which the weights of the policy are the chosen ones


def write_preference_pairs(store: Store, run: SealedRun) -> PairCounts:
    """Compare the policy with each baseline from the same states and replace the run's pairs.

    Raises:
        StorageError: if the market of the run's snapshots is not the one it was trained on.
    """
    plan = reopen_plan(store, run)
    environment = plan.spec.environment
    fill = resolve_fill(environment.fill, plan.panel)
    pairs = preference_pairs(read_run(store, ACTION_LOGS, run), plan.panel, environment.cost_models, fill)
    n_pairs = replace_run(store, PREFERENCE_PAIRS, pairs, run)
    n_won = len(pairs.filter(pl.col("chosen") == run.experiment))
    return PairCounts(n_pairs, int(pairs["holdout"].sum()), n_won)
