"""Sharpe ratio of each completed run by date, ranked and deflated for the runs before it."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from nvtrader_pipelines.evaluation.sharpe.inference import sharpe_moments
from nvtrader_pipelines.evaluation.statistics import YEARLY
from nvtrader_pipelines.evaluation.trials import (
    NOT_RANKED,
    Against,
    Period,
    RunReturns,
    Trial,
    deflation_of,
    periods_of,
    run_returns,
    trials_in_period,
)
from nvtrader_pipelines.evaluation.verdict_tables import RATIO_CURVE

_DEFLATED = RATIO_CURVE.only(
    "run_id",
    "period",
    "n_trials",
    "deflated_sharpe",
    "best_baseline",
    "information_ratio",
    "deflated_information_ratio",
    "note",
)


def sharpe_ratio_curve(
    runs: pl.DataFrame, evaluations: pl.DataFrame, trials: pl.DataFrame, curves: pl.DataFrame
) -> pl.DataFrame:
    """Rank and deflate every completed run per period (folds left out), in the order the runs finished.

    A run is represented by its ensemble, or by its first policy without one. `rank` 1 is the highest Sharpe ratio of
    the period on a market; `best_so_far` marks runs above all earlier ones there. Deflated ratios are as of the day the
    run finished: among the trials on its market so far, itself included, each over its own sessions. The
    information ratio is over the best baseline. Validation-only runs count as trials, but have no rank and are never
    the best.

    Args:
        runs: run_id, spec_hash, experiment, source, finished_at, validation_only of the completed runs.
        evaluations: rows of `walk_forward.evaluate` with a run_id.
        trials: run_id, source and validation_only of every run ever completed, in the order they finished.
        curves: as for `trials.run_returns`.

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
        .join(_deflated_ratios(trials, evaluations, curves), on=["run_id", "period"], how="left")
        .sort("finished_at", "run_id", "period")
    )
    ranked = pl.when(~pl.col("validation_only")).then("sharpe")
    earlier_best = ranked.cum_max().forward_fill().shift(1).over("source", "period")
    unknown = pl.lit("not a trial: the ledger has no such completed run with returns")
    return curve.with_columns(
        rank=ranked.rank("min", descending=True).over("source", "period").cast(pl.Int32),
        best_so_far=~pl.col("validation_only") & (earlier_best.is_null() | (pl.col("sharpe") > earlier_best)),
        note=pl.when("validation_only")
        .then(pl.lit(NOT_RANKED))
        .when(pl.col("n_trials").is_null())
        .then(unknown)
        .otherwise("note"),
    ).select(*RATIO_CURVE)


def _deflated_ratios(trials: pl.DataFrame, evaluations: pl.DataFrame, curves: pl.DataFrame) -> pl.DataFrame:
    """Rows of `_DEFLATED` for every trial in every period of its market."""
    returns = run_returns(curves)
    rows: list[dict[str, object]] = []
    for source, periods in periods_of(trials, evaluations).items():
        own = trials.filter(pl.col("source") == source)
        for period in periods:
            rows += _as_of(own, returns, period)
    return pl.DataFrame(rows, schema=_DEFLATED)


def _as_of(trials: pl.DataFrame, returns: Mapping[str, RunReturns], period: Period) -> Iterator[dict[str, object]]:
    """Row per trial with returns, discounted for the trials up to it."""
    so_far: list[Trial] = []
    known = {trial.name: trial for trial in trials_in_period(trials, returns, period).known}
    for n_trials, name in enumerate(trials["run_id"], start=1):  # with or without returns
        if name not in known:
            continue
        trial = known[name]
        row: dict[str, object] = {"run_id": name, "period": period.name, "n_trials": n_trials}
        if trial.unranked_reason:
            yield row | {"note": trial.unranked_reason}
            continue
        so_far.append(trial)
        (deflated, notes), (active, active_notes) = (
            _deflate_last(so_far, against, n_trials) for against in ("zero", "best_baseline")
        )
        yield row | {
            "deflated_sharpe": deflated,
            "best_baseline": trial.best_baseline_name,
            "information_ratio": trial.sharpe["best_baseline"] * YEARLY,
            "deflated_information_ratio": active,
            "note": "; ".join(dict.fromkeys([*notes, *active_notes])) or None,
        }


def _deflate_last(trials: Sequence[Trial], against: Against, n_trials: int) -> tuple[float | None, list[str]]:
    """Deflated Sharpe ratio of the last trial, and notes."""
    deflation = deflation_of(trials, trials[-1], against, n_trials)
    try:
        ratio = deflation.apply(sharpe_moments(trials[-1].returns(against))).get("deflated_sharpe")
    except ValueError as error:
        return None, [str(error)]
    return ratio, deflation.notes
