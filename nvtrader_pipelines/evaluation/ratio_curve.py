"""Whether the runs get better over time: the Sharpe ratio of every completed run, ranked."""

import polars as pl

RATIO_CURVE = (
    "run_id",
    "spec_hash",
    "experiment",
    "finished_at",
    "period",
    "sharpe",
    "sharpe_low",
    "sharpe_high",
    "max_drawdown",
    "rank",
    "best_so_far",
)


def sharpe_ratio_curve(runs: pl.DataFrame, evaluations: pl.DataFrame) -> pl.DataFrame:
    """One row per completed run and period (folds left out), in the order the runs finished.

    A run is represented by its ensemble, or by its first policy where it has none. `rank` 1 is the highest
    Sharpe ratio of the period; `best_so_far` says that no earlier run had as high a one.

    Args:
        runs: run_id, spec_hash, experiment, finished_at; a run that is not here is not complete.
        evaluations: rows of `walk_forward.evaluate` with a run_id.
    """
    learned = evaluations.filter(pl.col("kind").is_in(["ensemble", "policy"]), pl.col("period") != "fold")
    one_per_run = learned.sort("kind", maintain_order=True).unique(
        ["run_id", "period"], keep="first", maintain_order=True
    )
    judged = one_per_run.select("run_id", "period", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown")
    curve = (
        runs.select("run_id", "spec_hash", "experiment", "finished_at")
        .join(judged, on="run_id", how="inner")
        .sort("finished_at", "run_id", "period")
    )
    earlier_best = pl.col("sharpe").cum_max().shift(1).over("period")
    return curve.with_columns(
        rank=pl.col("sharpe").rank("min", descending=True).over("period").cast(pl.Int32),
        best_so_far=earlier_best.is_null() | (pl.col("sharpe") > earlier_best),
    ).select(RATIO_CURVE)
