"""The trials that every result is discounted for: which there were, by the ledger, and what they earned."""

import polars as pl

from nvtrader_pipelines.runs.tables import WALK_FORWARD, walk_forward_runs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES

CURVES = pl.Schema(
    {
        "run_id": pl.Categorical(),
        "policy": pl.Categorical(),
        "kind": pl.Categorical(),
        "session": pl.Date(),
        "net_return": pl.Float64(),
    }
)
RUNS_AT_ONCE = 20  # of which the names are in memory as text


def trial_runs(store: Store) -> pl.DataFrame:
    """Every walk-forward run ever completed, in the order they finished.

    Each version of an experiment counts, and so does each version of the code and of the market that it ran on.

    Returns:
        run_id, source, experiment, finished_at and validation_only.
    """
    done = store.ledger.runs().filter(pl.col("status") == "done", pl.col("kind") == WALK_FORWARD)
    experiment = pl.col("partition_key").str.split("@").list.first()
    trials = done.sort("finished_at", "run_id").select("run_id", "source", "finished_at", experiment=experiment)
    known = walk_forward_runs(store, ["run_id", "validation_only"])
    # one that the tables do not know has no returns there either
    return trials.join(known, on="run_id", how="left", maintain_order="left").with_columns(
        pl.col("validation_only").fill_null(value=False)
    )


def trial_curves(store: Store, runs: pl.DataFrame) -> pl.DataFrame:
    """Net return per session of the ensembles and baselines of these runs: run_id, policy, kind, session, net_return.

    A run whose rows are gone is not in it.
    """
    parts = [
        store.tables.read(
            EQUITY_CURVES, {"run_id": part["run_id"].to_list(), "kind": ["ensemble", "baseline"]}, list(CURVES)
        ).cast(CURVES)
        for part in runs.iter_slices(RUNS_AT_ONCE)
    ]
    return pl.concat([pl.DataFrame(schema=CURVES), *parts])
