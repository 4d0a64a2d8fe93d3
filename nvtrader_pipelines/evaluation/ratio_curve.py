"""Whether the runs get better over time: the Sharpe ratio of every completed run, ranked and deflated."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.active import active_returns
from nvtrader_pipelines.evaluation.deflation import YEARLY, Deflation
from nvtrader_pipelines.evaluation.sharpe_inference import sharpe_moments
from nvtrader_pipelines.evaluation.trials import (
    FloatArray,
    Period,
    RunReturns,
    align,
    periods_of,
    run_returns,
    shared_sessions,
    sharpe_ratios,
)

DEFLATED = {
    "n_trials": pl.Int64,
    "deflated_sharpe": pl.Float64,
    "best_baseline": pl.String,
    "active_sharpe": pl.Float64,
    "active_deflated_sharpe": pl.Float64,
    "note": pl.String,
}
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
    *DEFLATED,
)


def sharpe_ratio_curve(
    runs: pl.DataFrame, evaluations: pl.DataFrame, trials: pl.DataFrame, curves: pl.DataFrame
) -> pl.DataFrame:
    """One row per completed run and period (folds left out), in the order the runs finished.

    A run is represented by its ensemble, or by its first policy where it has none. `rank` 1 is the highest
    Sharpe ratio of the period; `best_so_far` says that no earlier run had as high a one. The deflated Sharpe ratios
    are those of the day the run finished: of the trials on its market by then, itself included, over the sessions
    that these share. The active one is of the net returns less those of the best baseline.

    Args:
        runs: run_id, spec_hash, experiment, finished_at; a run that is not here is not complete.
        evaluations: rows of `walk_forward.evaluate` with a run_id.
        trials: run_id and source of every run ever completed, in the order they finished.
        curves: as `trials.run_returns` wants them.

    Raises:
        ValueError: as `trials.run_returns` and `Trials`.
    """
    learned = evaluations.filter(pl.col("kind").is_in(["ensemble", "policy"]), pl.col("period") != "fold")
    one_per_run = learned.sort("kind", maintain_order=True).unique(
        ["run_id", "period"], keep="first", maintain_order=True
    )
    judged = one_per_run.select("run_id", "period", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown")
    curve = (
        runs.select("run_id", "spec_hash", "experiment", "finished_at")
        .join(judged, on="run_id", how="inner")
        .join(_deflated(trials, evaluations, curves), on=["run_id", "period"], how="left")
        .sort("finished_at", "run_id", "period")
    )
    earlier_best = pl.col("sharpe").cum_max().shift(1).over("period")
    unknown = pl.lit("the ledger has no such completed run with returns, so it has no place among the trials")
    return curve.with_columns(
        rank=pl.col("sharpe").rank("min", descending=True).over("period").cast(pl.Int32),
        best_so_far=earlier_best.is_null() | (pl.col("sharpe") > earlier_best),
        note=pl.when(pl.col("n_trials").is_null()).then(unknown).otherwise("note"),
    ).select(RATIO_CURVE)


def _deflated(trials: pl.DataFrame, evaluations: pl.DataFrame, curves: pl.DataFrame) -> pl.DataFrame:
    """run_id, period and what is DEFLATED of every trial in every period of its market."""
    of_run = run_returns(curves)
    rows: list[dict[str, object]] = []
    for source, periods in periods_of(trials, evaluations).items():
        names = trials.filter(pl.col("source") == source)["run_id"].to_list()
        for period in periods:
            rows += _as_of(names, of_run, period)
    return pl.DataFrame(rows, schema={"run_id": pl.String, "period": pl.String} | DEFLATED)


def _as_of(names: Sequence[str], of_run: Mapping[str, RunReturns], period: Period) -> Iterator[dict[str, object]]:
    """A row of each trial, discounted for those before it."""
    known = [i for i, name in enumerate(names) if name in of_run]
    shared = [of_run[names[i]].sessions for i in known[:1]]
    for i in known[1:]:
        shared.append(np.intersect1d(shared[-1], of_run[names[i]].sessions, assume_unique=True))
    for _, group in groupby(range(len(known)), key=lambda place: len(shared[place])):  # the same sessions
        places = list(group)
        so_far = [names[i] for i in known[: places[-1] + 1]]
        trials = align(so_far, of_run, shared_sessions([of_run[name] for name in so_far], period))
        active = active_returns(trials.net, trials.best_baseline)
        sharpe, active_sharpe = sharpe_ratios(trials.net), sharpe_ratios(active)
        for place in places:
            n_trials = known[place] + 1  # those whose returns are lost included
            deflated, why = _worth(trials.net, sharpe, place, n_trials)
            active_deflated, active_why = _worth(active, active_sharpe, place, n_trials)
            yield {
                "run_id": trials.names[place],
                "period": period.name,
                "n_trials": n_trials,
                "deflated_sharpe": deflated,
                "best_baseline": trials.best_baselines[place],
                "active_sharpe": float(active_sharpe[place]) * YEARLY if len(trials.sessions) else None,
                "active_deflated_sharpe": active_deflated,
                "note": "; ".join(dict.fromkeys([*why, *active_why])) or None,
            }


def _worth(returns: FloatArray, sharpe: FloatArray, place: int, n_trials: int) -> tuple[float | None, list[str]]:
    """Deflated Sharpe ratio of one column for those up to it, and what there is to say of it."""
    deflation = Deflation.of(sharpe[: place + 1], n_trials)
    try:
        found = deflation.apply(sharpe_moments(returns[:, place]))
    except ValueError as error:
        return None, [str(error)]
    return found.get("deflated_sharpe"), deflation.notes
