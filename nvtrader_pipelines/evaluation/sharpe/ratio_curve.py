"""Sharpe ratio of each completed run and search trial by date, ranked and deflated for those before it."""

from collections.abc import Iterator, Mapping
from datetime import date
from math import sqrt
from typing import Any

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.sharpe.inference import sharpe_moments
from nvtrader_pipelines.evaluation.trials import (
    NOT_RANKED,
    Against,
    FloatArray,
    Period,
    SearchReturns,
    Trial,
    deflation_of,
    periods_of,
    run_returns,
    trials_in_period,
)
from nvtrader_pipelines.evaluation.verdict_tables import RATIO_CURVE
from nvtrader_pipelines.market.calendar import Calendars

_DEFLATED = pl.Schema({"name": pl.String}) | RATIO_CURVE.only(
    "period",
    "n_trials",
    "deflated_sharpe",
    "best_baseline",
    "information_ratio",
    "deflated_information_ratio",
    "note",
)
_VALIDATION = Period("validation", date.min, date.max)  # of search trials; counts all sessions of the runs
_UNKNOWN = "not a trial: the ledger has no such completed run with returns"
_NOT_STORED = "its returns are no longer in the folder of its session"


def sharpe_ratio_curve(
    runs: pl.DataFrame,
    evaluations: pl.DataFrame,
    trials: pl.DataFrame,
    curves: pl.DataFrame,
    searches: pl.DataFrame,
    calendars: Calendars,
) -> pl.DataFrame:
    """Rank and deflate every completed run per period and every judged search trial, as they finished.

    A run is represented by its ensemble, or by its first policy without one; folds are left out. `rank` 1 is the
    highest Sharpe ratio of the kind in the period on a market; `best_so_far` marks rows above all earlier ones there.
    Validation-only runs count as trials, but have no rank and are never the best.

    Deflated ratios are as of the time a run or trial finished: among all runs and search trials on its market so far,
    itself included. Each counts by the share of the deflated one's sessions that it covers, so a search on an earlier
    window does not deflate a test, though `n_trials` has its trials; a run without returns or sessions in the period
    counts as one. A configuration that is searched twice on a validation is one trial. The variance is of the Sharpe
    ratios per session, each over its own sessions, of those that share some; pruned trials have none. The information
    ratio is over the best baseline, which search trials lack: there they add to the number only.

    Args:
        runs: run_id, spec_hash, experiment, source, finished_at, validation_only of the completed runs.
        evaluations: rows of `walk_forward.evaluate` with a run_id.
        trials: run_id, source, finished_at and validation_only of every run ever completed.
        curves: as for `trials.run_returns`.
        searches: session_id, trial_id, spec_hash, status, source, finished_at, sharpe, max_drawdown, validation_from,
            sealed_from and net_returns (a list or null) of the judged and pruned search trials.
        calendars: of the sources.

    Raises:
        ValueError: as `trials.run_returns`, `Trial` and `Trials`.
    """
    search_rows = searches.with_columns(
        name=pl.format("{}/trial-{}", "session_id", "trial_id"),
        configuration=pl.format("{} {} {}", "spec_hash", "validation_from", "sealed_from"),
    )
    results = [_judged_runs(runs, evaluations), _judged_trials(search_rows)]
    deflated = _deflated_ratios(trials, evaluations, curves, search_rows, calendars)
    curve = (
        pl.concat(results, how="diagonal_relaxed")
        .join(deflated, on=["name", "period"], how="left")
        .sort("finished_at", "name", "period")
    )
    group = ("kind", "source", "period")
    ranked = pl.when(~pl.col("validation_only")).then("sharpe")
    earlier_best = ranked.cum_max().forward_fill().shift(1).over(group)
    return curve.with_columns(
        rank=ranked.rank("min", descending=True).over(group).cast(pl.Int32),
        best_so_far=~pl.col("validation_only") & (earlier_best.is_null() | (pl.col("sharpe") > earlier_best)),
        note=pl.when("validation_only")
        .then(pl.lit(NOT_RANKED))
        .when(pl.col("n_trials").is_null())
        .then(pl.lit(_UNKNOWN))
        .otherwise("note"),
    ).select(*RATIO_CURVE)


def _judged_runs(runs: pl.DataFrame, evaluations: pl.DataFrame) -> pl.DataFrame:
    """Row per run and period, not yet ranked and deflated."""
    learned = evaluations.filter(pl.col("kind").is_in(["ensemble", "policy"]), pl.col("period") != "fold")
    one_per_run = learned.sort("kind", maintain_order=True).unique(
        ["run_id", "period"], keep="first", maintain_order=True
    )
    judged = one_per_run.select("run_id", "period", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown")
    return (
        runs.select("run_id", "spec_hash", "experiment", "source", "finished_at", "validation_only")
        .join(judged, on="run_id", how="inner")
        .with_columns(kind=pl.lit("run"), name="run_id")
    )


def _judged_trials(searches: pl.DataFrame) -> pl.DataFrame:
    """Row per judged search trial, the same."""
    return searches.filter(status="judged").select(
        "session_id",
        "trial_id",
        "name",
        "source",
        "finished_at",
        "sharpe",
        "max_drawdown",
        kind=pl.lit("trial"),
        experiment="name",
        period=pl.lit(_VALIDATION.name),
        validation_only=pl.lit(value=False),
    )


def _deflated_ratios(
    trials: pl.DataFrame,
    evaluations: pl.DataFrame,
    curves: pl.DataFrame,
    searches: pl.DataFrame,
    calendars: Calendars,
) -> pl.DataFrame:
    """Rows of `_DEFLATED` for every run in every period of its market, and for every search trial."""
    returns = run_returns(curves)
    search_returns = {row["configuration"]: _search_returns(row, calendars) for row in searches.iter_rows(named=True)}
    periods = periods_of(trials, evaluations)
    by_time = pl.concat(
        [
            trials.select("source", "finished_at", name="run_id", configuration="run_id"),
            searches.select("source", "finished_at", "name", "configuration"),
        ]
    ).sort("finished_at", maintain_order=True)
    rows: list[dict[str, object]] = []
    for (source,), order in by_time.group_by("source", maintain_order=True):
        runs, periods_per_year = trials.filter(source=source), calendars.of(str(source)).periods_per_year
        for period in (*periods.get(str(source), ()), _VALIDATION):
            of_runs = trials_in_period(runs, returns, period, periods_per_year).known
            rows += _as_of(order, {trial.name: trial for trial in of_runs} | search_returns, period)
    return pl.DataFrame(rows, schema=_DEFLATED)


def _search_returns(row: Mapping[str, Any], calendars: Calendars) -> SearchReturns:
    """Returns of a search trial, over days that fill its validation evenly: only shares are read from them."""
    net = None if row["net_returns"] is None else np.array(row["net_returns"])
    n_days = (row["sealed_from"] - row["validation_from"]).days
    days = np.linspace(0, n_days - 1, 2 if net is None else len(net)).astype("timedelta64[D]")
    sessions = np.datetime64(row["validation_from"]) + days
    return SearchReturns(row["configuration"], sessions, net, calendars.of(row["source"]).periods_per_year)


def _as_of(
    order: pl.DataFrame, known: Mapping[str, Trial | SearchReturns], period: Period
) -> Iterator[dict[str, object]]:
    """Row per run with returns in a period, or search trial on its validation, discounted for all up to it."""
    counted: set[str] = set()  # with or without returns
    so_far: dict[str, Trial | SearchReturns] = {}
    for name, configuration in order.select("name", "configuration").iter_rows():
        counted.add(configuration)
        if configuration not in known:
            continue
        trial = known[configuration]
        if not trial.unranked_reason:
            so_far[configuration] = trial
        if isinstance(trial, SearchReturns) == (period is _VALIDATION):
            yield {"name": name, "period": period.name, "n_trials": len(counted)} | _ratios(so_far, trial, len(counted))


def _ratios(
    known: Mapping[str, Trial | SearchReturns], trial: Trial | SearchReturns, n_trials: int
) -> dict[str, object]:
    """Deflated ratios of a trial for the known ones, and notes."""
    if trial.unranked_reason:
        return {"note": trial.unranked_reason}
    if trial.net is None:
        return {"note": _NOT_STORED}
    deflated, notes = _deflate(known, trial, trial.net, "zero", n_trials)
    row: dict[str, object] = {"deflated_sharpe": deflated}
    if isinstance(trial, Trial):
        residual = trial.returns("best_baseline")
        row["best_baseline"] = trial.best_baseline_name
        row["information_ratio"] = trial.sharpe["best_baseline"] * sqrt(trial.periods_per_year)
        row["deflated_information_ratio"], more = _deflate(known, trial, residual, "best_baseline", n_trials)
        notes = list(dict.fromkeys([*notes, *more]))
    return row | {"note": "; ".join(notes) or None}


def _deflate(
    known: Mapping[str, Trial | SearchReturns],
    trial: Trial | SearchReturns,
    returns: FloatArray,
    against: Against,
    n_trials: int,
) -> tuple[float | None, list[str]]:
    """Deflated Sharpe ratio of a trial's returns, and notes."""
    deflation = deflation_of(known.values(), trial, against, n_trials)
    try:
        ratio = deflation.apply(sharpe_moments(returns), trial.periods_per_year).get("deflated_sharpe")
    except ValueError as error:
        return None, [str(error)]
    return ratio, deflation.notes
