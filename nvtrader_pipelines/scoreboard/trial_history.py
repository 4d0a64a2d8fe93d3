"""Completed trials from the ledger, which every result is deflated for, and their returns."""

import polars as pl

from nvtrader_pipelines.runs.run_tables import WALK_FORWARD
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, RUNS

TRIAL_CURVES = pl.Schema(
    {
        "run_id": pl.Categorical(),
        "policy": pl.Categorical(),
        "kind": pl.Categorical(),
        "session": pl.Date(),
        "net_return": pl.Float64(),
    }
)
RUNS_PER_READ = 20  # bounds memory


def trial_runs(store: Store) -> pl.DataFrame:
    """Read every completed walk-forward run, by finish time.

    Every version of an experiment, of the code and of the market counts, deleted or not.

    Returns:
        run_id, source, experiment, finished_at and validation_only.
    """
    done = store.ledger.runs(with_deleted=True).filter(pl.col("status") == "done", pl.col("kind") == WALK_FORWARD)
    experiment = pl.col("partition_key").str.split("@").list.first()
    trials = done.sort("finished_at", "run_id").select("run_id", "source", "finished_at", experiment=experiment)
    known = store.tables.read(RUNS, columns=["run_id", "validation_only"])
    # a run that the tables lack has no returns there either
    return trials.join(known, on="run_id", how="left", maintain_order="left").with_columns(
        pl.col("validation_only").fill_null(value=False)
    )


def describe_next_trial(store: Store, source: str) -> str:
    """Number of the trial that a new run on a market is, and its effect on the others."""
    n_trials = trial_runs(store).filter(source=source).height + 1
    return f"trial {n_trials} on {source}" + ("; it lowers the deflated ratios of the others" if n_trials > 1 else "")


def trial_curves(store: Store, runs: pl.DataFrame) -> pl.DataFrame:
    """Read net returns per session of the ensembles and baselines of these runs.

    Runs whose rows were deleted are left out.

    Returns:
        run_id, policy, kind, session and net_return.
    """
    parts = [
        store.tables.read(
            EQUITY_CURVES, {"run_id": part["run_id"].to_list(), "kind": ["ensemble", "baseline"]}, list(TRIAL_CURVES)
        ).cast(TRIAL_CURVES)
        for part in runs.iter_slices(RUNS_PER_READ)
    ]
    return pl.concat([pl.DataFrame(schema=TRIAL_CURVES), *parts])
