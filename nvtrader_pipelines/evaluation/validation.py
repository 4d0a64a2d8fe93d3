"""Every trial on a market, discounted for all the others: Sharpe inference, active returns and overfitting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.active import market_model
from nvtrader_pipelines.evaluation.comparison import Comparison
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.multiple_testing import Correction, adjusted_p_values
from nvtrader_pipelines.evaluation.overfitting import MOST_BLOCKS
from nvtrader_pipelines.evaluation.sharpe.deflation import YEARLY, Deflation
from nvtrader_pipelines.evaluation.sharpe.inference import (
    minimum_track_record_length,
    probabilistic_sharpe_ratio,
    sharpe_moments,
    sharpe_p_value,
)
from nvtrader_pipelines.evaluation.trials import (
    AGAINST,
    Against,
    Trial,
    Trials,
    periods_of,
    run_returns,
    trials_within,
)
from nvtrader_pipelines.evaluation.verdict_tables import OVERFITTING, VALIDATION

FloatArray = NDArray[np.float64]
Bounds = Mapping[tuple[str, Against], tuple[float, float]]
PLACE = ("source", "period")  # of the trials that are judged together
_CORRECTIONS: tuple[Correction, ...] = ("holm", "benjamini_hochberg")


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
    seed: NonNegativeInt = Field(default=0, description="of the random signs")


def validate(trials: Trials, settings: ValidationSettings | None = None) -> Validation:
    """Judge every trial against zero, its best baseline and its anchor, with all the others in mind.

    Each trial is judged on its own sessions. Against a reference, returns are active: net returns less those of the
    reference, session by session. Sharpe ratios are annual. The deflation takes the number of all trials ever run, also
    of those whose returns are lost, and the variance of the Sharpe ratios of the others, each over its own sessions. A
    run for validation only is one of that number, and nothing else of it enters.
    Overfitting and the Rademacher bounds need common sessions: they are of the trials that have all sessions of the
    longest. What cannot be computed is null, and the note says why.
    """
    how = settings or ValidationSettings()
    bounds = _intervals(trials, how)
    rows, summaries = [], []
    for number, against in enumerate(AGAINST):
        generator = np.random.default_rng([how.seed, 1 + number])
        comparison = Comparison.of(trials, against, generator, how.n_sign_draws)
        rows += _rows(trials, comparison, bounds, how.delta)
        summaries.append(comparison.summary(how.n_blocks))
    return Validation(
        pl.DataFrame(rows, schema=VALIDATION.without(*PLACE, "experiment")),
        pl.DataFrame(summaries, schema=OVERFITTING.without(*PLACE)),
    )


def validate_sources(
    runs: pl.DataFrame,
    curves: pl.DataFrame,
    evaluations: pl.DataFrame,
    settings: ValidationSettings | None = None,
) -> Validation:
    """`validate` for every market source and every period of its verdicts.

    Args:
        runs: run_id, source, experiment and validation_only of every trial ever run.
        curves: as `trials.run_returns` wants them.
        evaluations: run_id, period, first_session and last_session of the runs' verdicts; folds are left out.
        settings: as `validate` takes them.

    Returns:
        The frames of `validate` with source and period, and the trials with their experiment.

    Raises:
        ValueError: as `trials.run_returns`, `Trial` and `Trials`.
    """
    of_run = run_returns(curves)
    experiments = runs.select("run_id", "experiment")
    found: list[tuple[pl.DataFrame, pl.DataFrame]] = []
    for source, periods in periods_of(runs, evaluations).items():
        own = runs.filter(pl.col("source") == source)
        for period in periods:
            judged = validate(trials_within(own, of_run, period), settings)
            where = {"source": pl.lit(source), "period": pl.lit(period.name)}
            trials = judged.trials.join(experiments, on="run_id", how="left")
            found.append((trials.with_columns(**where), judged.overfitting.with_columns(**where)))
    return Validation(
        pl.concat([VALIDATION.to_frame(), *(trials.select(*VALIDATION) for trials, _ in found)]),
        pl.concat([OVERFITTING.to_frame(), *(overfitting.select(*OVERFITTING) for _, overfitting in found)]),
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


def _intervals(trials: Trials, how: ValidationSettings) -> Bounds:
    """Bounds of every trial's annual Sharpe ratios; a draw resamples the same sessions of all trials of one length.

    They depend on nothing but a trial's own returns.
    """
    by_length: dict[int, list[Trial]] = {}
    for trial in trials.known:
        if not trial.unranked:
            by_length.setdefault(len(trial.sessions), []).append(trial)
    found: dict[tuple[str, Against], tuple[float, float]] = {}
    for group in by_length.values():
        columns = list(product(group, AGAINST))
        returns = np.column_stack([trial.returns(against) for trial, against in columns])
        draws = how.intervals.draw(returns)
        for i, (trial, against) in enumerate(columns):
            found[trial.name, against] = draws.interval(i)
    return found


def _rows(trials: Trials, comparison: Comparison, bounds: Bounds, delta: float) -> list[dict[str, object]]:
    """A row of each trial."""
    against = comparison.against
    shared = {"against": against, "n_trials": trials.n_ever}
    rows: list[dict[str, object]] = [
        {**shared, "run_id": name, "note": "its returns are not in the tables any more"}
        for name in trials.without_returns
    ]
    if not trials.known:
        return rows
    deflation = Deflation.of(trials.sharpe(against), trials.n_ever)
    own = [({}, []) if trial.unranked else _inference(trial, against, deflation) for trial in trials.known]
    adjusted = _adjusted([found.get("p_value") for found, _ in own], trials.n_ever)
    lower = comparison.lower_bounds(delta)
    for trial, (found, notes), corrected in zip(trials.known, own, adjusted, strict=True):
        row: dict[str, object] = {**shared, **_window(trial), "run_id": trial.name}
        if trial.unranked:
            rows.append(row | {"note": trial.unranked})
            continue
        reference = trial.reference(against)
        low, high = bounds[trial.name, against]
        beyond, why = _beyond(trial, against)
        said = [*deflation.notes, *comparison.left_out(trial), *why, *notes]
        row |= {
            "reference": reference[0] if reference else None,
            "sharpe": trial.sharpe(against) * YEARLY,
            "sharpe_low": low,
            "sharpe_high": high,
            "rademacher_lower": lower.get(trial.name),
        }
        rows.append({**row, **found, **corrected, **beyond, "note": "; ".join(said) or None})
    return rows


def _window(trial: Trial) -> dict[str, object]:
    """Which sessions it was judged on."""
    days = trial.sessions
    ends = {"first_session": days[0].item(), "last_session": days[-1].item()} if len(days) else {}
    return {**ends, "n_sessions": len(days)}


def _adjusted(p_values: Sequence[float | None], n_ever: int) -> list[dict[str, float]]:
    """Adjusted p values of each trial that has one; all that were ever run are tests, those without one count as 1."""
    every = np.ones(n_ever)
    every[: len(p_values)] = [1.0 if p_value is None else p_value for p_value in p_values]
    ways = {way: adjusted_p_values(every, way) for way in _CORRECTIONS}
    return [
        {} if p_value is None else {way: float(found[i]) for way, found in ways.items()}
        for i, p_value in enumerate(p_values)
    ]


def _inference(trial: Trial, against: Against, deflation: Deflation) -> tuple[dict[str, float], list[str]]:
    """What follows from one trial's returns, and why something does not."""
    try:
        moments = sharpe_moments(trial.returns(against))
        found = {"probabilistic_sharpe": probabilistic_sharpe_ratio(moments), "p_value": sharpe_p_value(moments)}
        found |= deflation.apply(moments)
    except ValueError as error:
        return {}, [str(error)]
    if moments.sharpe <= 0.0:
        return found, [f"no record is long enough: its {_kind(against)} is not positive"]
    return {**found, "minimum_track_record_length": minimum_track_record_length(moments)}, []


def _kind(against: Against) -> str:
    return "Sharpe ratio" if against == "zero" else "information ratio"


def _beyond(trial: Trial, against: Against) -> tuple[dict[str, float], list[str]]:
    """Alpha and beta, where there is a reference."""
    reference = trial.reference(against)
    if reference is None:
        return {}, []
    try:
        model = market_model(trial.net, reference[1])
    except ValueError as error:
        return {}, [str(error)]
    found = {"alpha_per_year": model.alpha_per_year, "beta": model.beta}
    if model.alpha_t is None:
        return found, ["alpha has no t statistic, for the returns are beta times those of the reference"]
    return {**found, "alpha_t": model.alpha_t}, []
