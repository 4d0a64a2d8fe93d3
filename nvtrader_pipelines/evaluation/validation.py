"""Every trial on a market, discounted for all the others: Sharpe inference, active returns and overfitting."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.evaluation.active import active_returns, market_model
from nvtrader_pipelines.evaluation.deflation import YEARLY, Deflation
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.multiple_testing import Correction, adjusted_p_values
from nvtrader_pipelines.evaluation.overfitting import MOST_BLOCKS, backtest_overfitting
from nvtrader_pipelines.evaluation.rademacher import (
    lower_bounds,
    massart_bound,
    rademacher_complexity,
    sharpe_ratio_estimation_error,
)
from nvtrader_pipelines.evaluation.sharpe_inference import (
    MIN_OBSERVATIONS,
    effective_number_of_trials,
    minimum_track_record_length,
    probabilistic_sharpe_ratio,
    sharpe_moments,
    sharpe_p_value,
)
from nvtrader_pipelines.evaluation.trials import (
    Days,
    Period,
    RunReturns,
    Trials,
    align,
    mean_correlation,
    periods_of,
    run_returns,
    shared_sessions,
    sharpe_ratios,
    varies,
)

FloatArray = NDArray[np.float64]
Against = Literal["zero", "best_baseline", "anchor"]
AGAINST: tuple[Against, ...] = get_args(Against)
_CORRECTIONS: tuple[Correction, ...] = ("holm", "benjamini_hochberg")

VALIDATION = {
    "run_id": pl.String,
    "against": pl.String,
    "reference": pl.String,
    "n_trials": pl.Int64,
    "first_session": pl.Date,
    "last_session": pl.Date,
    "n_sessions": pl.Int64,
    "sharpe": pl.Float64,
    "sharpe_low": pl.Float64,
    "sharpe_high": pl.Float64,
    "probabilistic_sharpe": pl.Float64,
    "expected_maximum_sharpe": pl.Float64,
    "deflated_sharpe": pl.Float64,
    "deflated_sharpe_2025": pl.Float64,
    "minimum_track_record_length": pl.Float64,
    "p_value": pl.Float64,
    "holm": pl.Float64,
    "benjamini_hochberg": pl.Float64,
    "rademacher_lower": pl.Float64,
    "alpha_per_year": pl.Float64,
    "beta": pl.Float64,
    "alpha_t": pl.Float64,
    "note": pl.String,
}
OVERFITTING = {
    "against": pl.String,
    "n_trials": pl.Int64,
    "first_session": pl.Date,
    "last_session": pl.Date,
    "n_sessions": pl.Int64,
    "mean_correlation": pl.Float64,
    "effective_n_trials": pl.Float64,
    "n_blocks": pl.Int64,
    "n_combinations": pl.Int64,
    "probability_of_overfitting": pl.Float64,
    "degradation_slope": pl.Float64,
    "degradation_intercept": pl.Float64,
    "degradation_r_squared": pl.Float64,
    "probability_of_loss": pl.Float64,
    "rademacher_complexity": pl.Float64,
    "massart_bound": pl.Float64,
    "logits": pl.List(pl.Float64),
    "in_sample": pl.List(pl.Float64),
    "out_of_sample": pl.List(pl.Float64),
    "note": pl.String,
}


@dataclass(frozen=True, eq=False)
class Validation:
    """What the trials on one market come to."""

    trials: pl.DataFrame  # VALIDATION, a row per trial and what it is held against
    overfitting: pl.DataFrame  # OVERFITTING, a row per what all are held against


class ValidationSettings(Component):
    """How trials are validated."""

    n_blocks: int = Field(default=16, ge=2, le=MOST_BLOCKS, multiple_of=2, description="of the cross-validation")
    delta: float = Field(default=0.05, gt=0.0, lt=1.0, description="probability that any Rademacher bound fails")
    n_sign_draws: PositiveInt = Field(default=2000, description="random signs of the Rademacher complexity")
    intervals: SharpeIntervals = SharpeIntervals()
    seed: int = 0


@dataclass(frozen=True, eq=False)
class _Contest:
    """All trials against one thing."""

    against: Against
    references: tuple[str | None, ...]  # (N,)
    reference: FloatArray | None  # (T, N)
    returns: FloatArray  # (T, N), active where there is a reference
    sharpe: FloatArray  # (N,) per session


def validate(trials: Trials, settings: ValidationSettings | None = None) -> Validation:
    """Judge every trial against zero, its best baseline and its anchor, with all the others in mind.

    Against a reference, returns are active: net returns less those of the reference, session by session. Sharpe ratios
    are annual. The deflation takes the number of all trials ever run, also of those whose returns are lost, and the
    variance of the Sharpe ratios of the others. What cannot be computed is null, and the note says why.
    """
    how = settings or ValidationSettings()
    contests = [_contest(trials, against) for against in AGAINST]
    columns = np.hstack([contest.returns for contest in contests])
    enough = len(trials.sessions) >= MIN_OBSERVATIONS and columns.shape[1] > 0
    draws = how.intervals.draw(columns, np.random.default_rng([how.seed, 0])) if enough else None
    rows, summaries = [], []
    for number, contest in enumerate(contests):
        generator = np.random.default_rng([how.seed, 1 + number])
        complexity = _complexity(contest, how, generator) if enough else None
        first = number * len(trials.names)
        bounds = [] if draws is None else [draws.interval(first + i) for i in range(len(trials.names))]
        rows += _rows(trials, contest, bounds, complexity, how)
        summaries.append(_summary(trials, contest, complexity, how))
    return Validation(pl.DataFrame(rows, schema=VALIDATION), pl.DataFrame(summaries, schema=OVERFITTING))


def validate_sources(
    runs: pl.DataFrame,
    curves: pl.DataFrame,
    evaluations: pl.DataFrame,
    settings: ValidationSettings | None = None,
) -> Validation:
    """`validate` for every market source and every period of its verdicts.

    Args:
        runs: run_id, source and experiment of every trial ever run.
        curves: as `trials.run_returns` wants them.
        evaluations: run_id, period, first_session and last_session of the runs' verdicts; folds are left out.
        settings: as `validate` takes them.

    Returns:
        The frames of `validate` with source and period, and the trials with their experiment.

    Raises:
        ValueError: as `trials.run_returns` and `Trials`.
    """
    of_run = run_returns(curves)
    experiments = runs.select("run_id", "experiment")
    found: list[tuple[pl.DataFrame, pl.DataFrame]] = []
    for source, periods in periods_of(runs, evaluations).items():
        names = runs.filter(pl.col("source") == source)["run_id"].to_list()
        known = [of_run[name] for name in names if name in of_run]
        for period in periods:
            shared = shared_sessions(known, period)
            judged = validate(align(names, of_run, shared), settings)
            told = pl.concat_str("note", pl.lit(_unshared(known, shared, period)), separator="; ", ignore_nulls=True)
            where = {
                "source": pl.lit(source),
                "period": pl.lit(period.name),
                "note": pl.when(told != "").then(told),
            }
            trials = judged.trials.join(experiments, on="run_id", how="left")
            found.append((trials.with_columns(**where), judged.overfitting.with_columns(**where)))
    place = {"source": pl.String, "period": pl.String}
    empty = pl.DataFrame(schema=place | {"experiment": pl.String} | VALIDATION)
    nothing = pl.DataFrame(schema=place | OVERFITTING)
    return Validation(
        pl.concat([empty, *(trials.select(empty.columns) for trials, _ in found)]),
        pl.concat([nothing, *(overfitting.select(nothing.columns) for _, overfitting in found)]),
    )


def _unshared(known: Sequence[RunReturns], shared: Days, period: Period) -> str | None:
    """What a reader must know where a trial with a short window takes sessions from all others."""
    lengths = [len(shared_sessions([run], period)) for run in known]
    if not lengths or len(shared) == max(lengths):
        return None
    return (
        f"all trials share {len(shared)} of the {max(lengths)} sessions of the longest; the shortest has {min(lengths)}"
    )


def reported_period(periods: pl.Series) -> str:
    """Of the periods of verdicts the one to show: the last `from_<year>`, else `all`."""
    reported = periods.filter(periods.str.starts_with("from_")).sort()
    return str(reported[-1]) if len(reported) else "all"


def headlines(judged: Validation, n_trials: int = 20) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What to read first of `validate_sources`: the newest trials of each source in its reported period, and all sums.

    Numbers are rounded to three digits behind the point, and what only a computer reads is left out.
    """
    newest = [judged.trials.clear()]
    for rows in judged.trials.partition_by("source", maintain_order=True):
        ids = rows["run_id"].unique(maintain_order=True).tail(n_trials).to_list()
        newest.append(rows.filter(pl.col("period") == reported_period(rows["period"]), pl.col("run_id").is_in(ids)))
    rounded = cs.float().round(3)
    shown = ["source", "period", "experiment", "run_id", "against", "reference", "n_trials", "sharpe", "sharpe_low"]
    shown += ["sharpe_high", "deflated_sharpe", "deflated_sharpe_2025", "holm", "alpha_per_year", "alpha_t", "note"]
    lists = ["logits", "in_sample", "out_of_sample"]
    return pl.concat(newest).select(shown).with_columns(rounded), judged.overfitting.drop(lists).with_columns(rounded)


def _contest(trials: Trials, against: Against) -> _Contest:
    if against == "zero":
        nobody = (None,) * len(trials.names)
        return _Contest(against, nobody, None, trials.net, sharpe_ratios(trials.net))
    reference, names = {
        "best_baseline": (trials.best_baseline, trials.best_baselines),
        "anchor": (trials.anchor, trials.anchors),
    }[against]
    active = active_returns(trials.net, reference)
    return _Contest(against, names, reference, active, sharpe_ratios(active))


def _complexity(contest: _Contest, how: ValidationSettings, generator: np.random.Generator) -> float:
    """Of the returns over their volatility, per session."""
    return rademacher_complexity(_standardized(contest), generator, how.n_sign_draws)


def _standardized(contest: _Contest) -> FloatArray:
    """Returns over their volatility, whose means are the Sharpe ratios; 0 where they never vary."""
    deviation = contest.returns.std(axis=0, ddof=1)
    return np.divide(contest.returns, deviation, out=np.zeros_like(contest.returns), where=varies(contest.returns))


def _shared(trials: Trials, contest: _Contest) -> dict[str, object]:
    """What all rows of a contest have in common."""
    days = trials.sessions
    return {
        "against": contest.against,
        "n_trials": trials.n_ever,
        "first_session": days[0].item() if len(days) else None,
        "last_session": days[-1].item() if len(days) else None,
        "n_sessions": len(days),
    }


def _rows(
    trials: Trials,
    contest: _Contest,
    bounds: Sequence[tuple[float, float]],
    complexity: float | None,
    how: ValidationSettings,
) -> list[dict[str, object]]:
    """A row of each trial."""
    shared = _shared(trials, contest)
    rows: list[dict[str, object]] = [
        {**shared, "run_id": name, "note": "its returns are not in the tables any more"}
        for name in trials.without_returns
    ]
    if complexity is None:
        n_shared = len(trials.sessions)
        too_short = f"the {trials.n_ever} trials share {n_shared} sessions, and {MIN_OBSERVATIONS} are needed"
        return rows + [{**shared, "run_id": name, "note": too_short} for name in trials.names]
    deflation = Deflation.of(contest.sharpe, trials.n_ever)
    own = [_inference(contest.returns[:, i], deflation) for i in range(len(trials.names))]
    adjusted = _adjusted([found.get("p_value") for found, _ in own], trials.n_ever)
    error = sharpe_ratio_estimation_error(len(trials.sessions), trials.n_ever, how.delta)
    lower = lower_bounds(contest.sharpe, complexity, error)
    for i, (name, (found, notes)) in enumerate(zip(trials.names, own, strict=True)):
        beyond, why = _beyond(trials.net[:, i], None if contest.reference is None else contest.reference[:, i])
        rows.append(
            {
                **shared,
                "run_id": name,
                "reference": contest.references[i],
                "sharpe": contest.sharpe[i] * YEARLY,
                "sharpe_low": bounds[i][0],
                "sharpe_high": bounds[i][1],
                "rademacher_lower": lower[i] * YEARLY,
                **found,
                **adjusted[i],
                **beyond,
                "note": "; ".join([*deflation.notes, *notes, *why]) or None,
            }
        )
    return rows


def _adjusted(p_values: Sequence[float | None], n_ever: int) -> list[dict[str, float]]:
    """Adjusted p values of each trial that has one; all that were ever run are tests, those without one count as 1."""
    every = np.ones(n_ever)
    every[: len(p_values)] = [1.0 if p_value is None else p_value for p_value in p_values]
    ways = {way: adjusted_p_values(every, way) for way in _CORRECTIONS}
    return [
        {} if p_value is None else {way: float(found[i]) for way, found in ways.items()}
        for i, p_value in enumerate(p_values)
    ]


def _inference(returns: FloatArray, deflation: Deflation) -> tuple[dict[str, float], list[str]]:
    """What follows from one trial's returns, and why something does not."""
    try:
        moments = sharpe_moments(returns)
        found = {"probabilistic_sharpe": probabilistic_sharpe_ratio(moments), "p_value": sharpe_p_value(moments)}
        found |= deflation.apply(moments)
    except ValueError as error:
        return {}, [str(error)]
    try:
        return {**found, "minimum_track_record_length": minimum_track_record_length(moments)}, []
    except ValueError as error:
        return found, [str(error)]


def _beyond(returns: FloatArray, reference: FloatArray | None) -> tuple[dict[str, float], list[str]]:
    """Alpha and beta, where there is a reference."""
    if reference is None:
        return {}, []
    try:
        model = market_model(returns, reference)
    except ValueError as error:
        return {}, [str(error)]
    return {"alpha_per_year": model.alpha_per_year, "beta": model.beta, "alpha_t": model.alpha_t}, []


def _summary(trials: Trials, contest: _Contest, complexity: float | None, how: ValidationSettings) -> dict[str, object]:
    """The row of a contest."""
    row = _shared(trials, contest)
    if complexity is not None:
        row |= {
            "rademacher_complexity": complexity * YEARLY,
            "massart_bound": massart_bound(_standardized(contest)) * YEARLY,
        }
    try:
        found = backtest_overfitting(contest.returns, how.n_blocks)
        line = found.degradation()
        row |= {
            "n_blocks": found.n_blocks,
            "n_combinations": len(found.logits),
            "probability_of_overfitting": found.probability,
            "degradation_slope": line.slope,
            "degradation_intercept": line.intercept * YEARLY,
            "degradation_r_squared": line.r_squared,
            "probability_of_loss": found.probability_of_loss,
            "logits": found.logits.tolist(),
            "in_sample": (found.in_sample * YEARLY).tolist(),
            "out_of_sample": (found.out_of_sample * YEARLY).tolist(),
        }
        correlation = mean_correlation(contest.returns)
        row |= {
            "mean_correlation": correlation,
            "effective_n_trials": effective_number_of_trials(trials.n_ever, correlation),
        }
    except ValueError as error:
        row["note"] = str(error)
    return row
