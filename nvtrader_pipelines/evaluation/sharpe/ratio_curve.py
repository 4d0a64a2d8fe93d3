"""Whether the runs get better over time: the Sharpe ratio of every completed run, ranked and deflated."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.sharpe.deflation import YEARLY, Deflation
from nvtrader_pipelines.evaluation.sharpe.inference import sharpe_moments
from nvtrader_pipelines.evaluation.trials import (
    NOT_RANKED,
    Against,
    Period,
    RunReturns,
    Trial,
    periods_of,
    run_returns,
    telling,
    trials_within,
)
from nvtrader_pipelines.evaluation.verdict_tables import RATIO_CURVE

_DEFLATED = RATIO_CURVE.only(
    "run_id",
    "period",
    "n_trials",
    "deflated_sharpe",
    "best_baseline",
    "active_sharpe",
    "active_deflated_sharpe",
    "note",
)


def sharpe_ratio_curve(
    runs: pl.DataFrame, evaluations: pl.DataFrame, trials: pl.DataFrame, curves: pl.DataFrame
) -> pl.DataFrame:
    """One row per completed run and period (folds left out), in the order the runs finished.

    A run is represented by its ensemble, or by its first policy where it has none. `rank` 1 is the highest
    Sharpe ratio of the period on a market; `best_so_far` says that no earlier run there had as high a one. The
    deflated Sharpe ratios are those of the day the run finished: of the trials on its market by then, itself included,
    each over its own sessions. The active one is of the net returns less those of the best baseline. A run for
    validation only counts as a trial, has no rank and is never the best.

    Args:
        runs: run_id, spec_hash, experiment, source, finished_at, validation_only; one that is not here is not complete.
        evaluations: rows of `walk_forward.evaluate` with a run_id.
        trials: run_id, source and validation_only of every run ever completed, in the order they finished.
        curves: as `trials.run_returns` wants them.

    Raises:
        ValueError: as `trials.run_returns`, `Trial` and `Trials`.
    """
    learned = evaluations.filter(pl.col("kind").is_in(["ensemble", "policy"]), pl.col("period") != "fold")
    one_per_run = learned.sort("kind", maintain_order=True).unique(
        ["run_id", "period"], keep="first", maintain_order=True
    )
    judged = one_per_run.select("run_id", "period", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown")
    curve = (
        runs.select("run_id", "spec_hash", "experiment", "source", "finished_at", "validation_only")
        .join(judged, on="run_id", how="inner")
        .join(_deflated(trials, evaluations, curves), on=["run_id", "period"], how="left")
        .sort("finished_at", "run_id", "period")
    )
    ranked = pl.when(~pl.col("validation_only")).then("sharpe")
    earlier_best = ranked.cum_max().forward_fill().shift(1).over("source", "period")
    unknown = pl.lit("the ledger has no such completed run with returns, so it has no place among the trials")
    return curve.with_columns(
        rank=ranked.rank("min", descending=True).over("source", "period").cast(pl.Int32),
        best_so_far=~pl.col("validation_only") & (earlier_best.is_null() | (pl.col("sharpe") > earlier_best)),
        note=pl.when("validation_only")
        .then(pl.lit(NOT_RANKED))
        .when(pl.col("n_trials").is_null())
        .then(unknown)
        .otherwise("note"),
    ).select(*RATIO_CURVE)


def _deflated(trials: pl.DataFrame, evaluations: pl.DataFrame, curves: pl.DataFrame) -> pl.DataFrame:
    """Rows of `_DEFLATED` for every trial in every period of its market."""
    of_run = run_returns(curves)
    rows: list[dict[str, object]] = []
    for source, periods in periods_of(trials, evaluations).items():
        own = trials.filter(pl.col("source") == source)
        for period in periods:
            rows += _as_of(own, of_run, period)
    return pl.DataFrame(rows, schema=_DEFLATED)


def _as_of(trials: pl.DataFrame, of_run: Mapping[str, RunReturns], period: Period) -> Iterator[dict[str, object]]:
    """A row of each trial with returns, discounted for those before it."""
    before: list[Trial] = []
    known = {trial.name: trial for trial in trials_within(trials, of_run, period).known}
    for n_trials, name in enumerate(trials["run_id"], start=1):  # those whose returns are lost included
        if name not in known:
            continue
        trial = known[name]
        row: dict[str, object] = {"run_id": name, "period": period.name, "n_trials": n_trials}
        if trial.unranked:
            yield row | {"note": trial.unranked}
            continue
        before.append(trial)
        (deflated, said), (active, said_of_active) = (
            _worth(before, against, n_trials) for against in ("zero", "best_baseline")
        )
        yield row | {
            "deflated_sharpe": deflated,
            "best_baseline": trial.best_baseline_name,
            "active_sharpe": trial.sharpe("best_baseline") * YEARLY,
            "active_deflated_sharpe": active,
            "note": "; ".join(dict.fromkeys([*said, *said_of_active])) or None,
        }


def _worth(trials: Sequence[Trial], against: Against, n_trials: int) -> tuple[float | None, list[str]]:
    """Deflated Sharpe ratio of the last of some trials, and what there is to say of it."""
    deflation = Deflation.of(np.array([trial.sharpe(against) for trial in telling(trials)]), n_trials)
    try:
        found = deflation.apply(sharpe_moments(trials[-1].returns(against)))
    except ValueError as error:
        return None, [str(error)]
    return found.get("deflated_sharpe"), deflation.notes
