"""Validation of trials on a market: Sharpe inference discounted for all trials, and overfitting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.alpha import market_model
from nvtrader_pipelines.evaluation.comparison import TrialComparison
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.multiple_testing import Correction, adjusted_p_values
from nvtrader_pipelines.evaluation.overfitting import MAX_BLOCKS
from nvtrader_pipelines.evaluation.sharpe.deflation import Deflation
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
    trials_in_period,
)
from nvtrader_pipelines.evaluation.verdict_tables import OVERFITTING, VALIDATION, reported_period
from nvtrader_pipelines.market.calendar import Calendars

FloatArray = NDArray[np.float64]
Bounds = Mapping[tuple[str, Against], tuple[float, float]]
PLACE = ("source", "period")  # of the trials that are judged together
_CORRECTIONS: tuple[Correction, ...] = ("holm", "benjamini_hochberg")


@dataclass(frozen=True, eq=False)
class Validation:
    """Validation of the trials on one market."""

    trials: pl.DataFrame  # VALIDATION, a row per trial and reference
    overfitting: pl.DataFrame  # OVERFITTING, a row per reference


class ValidationSettings(Component):
    """Settings of the validation of trials."""

    n_blocks: int = Field(default=16, ge=2, le=MAX_BLOCKS, multiple_of=2, description="of the cross-validation")
    delta: float = Field(default=0.05, gt=0.0, lt=1.0, description="probability that any Rademacher bound fails")
    n_sign_draws: PositiveInt = Field(default=2000, description="random signs of the Rademacher complexity")
    intervals: SharpeIntervals = SharpeIntervals()
    seed: NonNegativeInt = Field(default=0, description="of the random signs")


def validate(trials: Trials, settings: ValidationSettings | None = None) -> Validation:
    """Validate every trial against zero, its best baseline and its anchor, discounted for all trials.

    Each trial is evaluated on its own sessions. Against a reference, returns are residual, so that the Sharpe ratio is
    the information ratio. Ratios are annual. The deflation takes the number of all trials ever run, with or without
    returns on record, and the variance of the ratios of the ranked ones, each over its own sessions. Validation-only
    runs count in that number and nowhere else.
    Overfitting and the Rademacher bounds need common sessions: they cover the trials with all sessions of the longest.
    Figures that cannot be computed are null, and the note gives the reason.
    """
    chosen = settings or ValidationSettings()
    bounds = _intervals(trials, chosen)
    rows, summaries = [], []
    for number, against in enumerate(AGAINST):
        generator = np.random.default_rng([chosen.seed, 1 + number])
        comparison = TrialComparison.of(trials, against, generator, chosen.n_sign_draws)
        rows += _rows(trials, comparison, bounds, chosen.delta)
        summaries.append(comparison.summary(chosen.n_blocks))
    return Validation(
        pl.DataFrame(rows, schema=VALIDATION.without(*PLACE, "experiment")),
        pl.DataFrame(summaries, schema=OVERFITTING.without(*PLACE)),
    )


def validate_sources(
    runs: pl.DataFrame,
    curves: pl.DataFrame,
    evaluations: pl.DataFrame,
    calendars: Calendars,
    settings: ValidationSettings | None = None,
) -> Validation:
    """Validate the trials of every market source and period of verdicts.

    Args:
        runs: run_id, source, experiment and validation_only of every trial ever run.
        curves: as for `trials.run_returns`.
        evaluations: run_id, period, first_session and last_session of the runs' verdicts; folds are ignored.
        calendars: of the sources.
        settings: as for `validate`.

    Returns:
        Frames of `validate` with source and period, the trials also with their experiment.

    Raises:
        ValueError: as `trials.run_returns`, `Trial` and `Trials`.
    """
    returns = run_returns(curves)
    experiments = runs.select("run_id", "experiment")
    parts: list[tuple[pl.DataFrame, pl.DataFrame]] = []
    for source, periods in periods_of(runs, evaluations).items():
        own, periods_per_year = runs.filter(pl.col("source") == source), calendars.of(source).periods_per_year
        for period in periods:
            validated = validate(trials_in_period(own, returns, period, periods_per_year), settings)
            where = {"source": pl.lit(source), "period": pl.lit(period.name)}
            trials = validated.trials.join(experiments, on="run_id", how="left")
            parts.append((trials.with_columns(**where), validated.overfitting.with_columns(**where)))
    return Validation(
        pl.concat([VALIDATION.to_frame(), *(trials.select(*VALIDATION) for trials, _ in parts)]),
        pl.concat([OVERFITTING.to_frame(), *(overfitting.select(*OVERFITTING) for _, overfitting in parts)]),
    )


def headlines(validation: Validation, n_trials: int = 20) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Shorten a validation for people: newest trials per source in the reported period, and overfitting.

    Numbers are rounded to three decimals; lists are dropped.
    """
    newest = [validation.trials.clear()]
    for rows in validation.trials.partition_by("source", maintain_order=True):
        ids = rows["run_id"].unique(maintain_order=True).tail(n_trials).to_list()
        newest.append(rows.filter(pl.col("period") == reported_period(rows["period"]), pl.col("run_id").is_in(ids)))
    rounded = cs.float().round(3)
    shown = ["source", "period", "experiment", "run_id", "against", "reference", "n_trials", "sharpe", "sharpe_low"]
    shown += ["sharpe_high", "deflated_sharpe", "holm", "alpha_per_year", "alpha_t", "note"]
    lists = ["logits", "in_sample", "out_of_sample"]
    return pl.concat(newest).select(shown).with_columns(rounded), validation.overfitting.drop(lists).with_columns(
        rounded
    )


def _intervals(trials: Trials, settings: ValidationSettings) -> Bounds:
    """Intervals of every ranked trial's annual ratios; trials of one length share their draws.

    An interval depends on the trial's own returns only.
    """
    by_length: dict[int, list[Trial]] = {}
    for trial in trials.known:
        if not trial.unranked_reason:
            by_length.setdefault(len(trial.sessions), []).append(trial)
    bounds: dict[tuple[str, Against], tuple[float, float]] = {}
    for group in by_length.values():
        columns = list(product(group, AGAINST))
        returns = np.column_stack([trial.returns(against) for trial, against in columns])
        draws = settings.intervals.draw(returns, group[0].periods_per_year)
        for i, (trial, against) in enumerate(columns):
            bounds[trial.name, against] = draws.interval(i)
    return bounds


def _rows(trials: Trials, comparison: TrialComparison, bounds: Bounds, delta: float) -> list[dict[str, object]]:
    against = comparison.against
    shared = {"against": against, "n_trials": trials.n_trials}
    rows: list[dict[str, object]] = [
        {**shared, "run_id": name, "note": "its returns are no longer in the tables"} for name in trials.without_returns
    ]
    if not trials.known:
        return rows
    deflations = [trials.deflation(trial, against) for trial in trials.known]
    own = [
        ({}, []) if trial.unranked_reason else _inference(trial, against, deflation)
        for trial, deflation in zip(trials.known, deflations, strict=True)
    ]
    adjusted = _adjusted_p_values([found.get("p_value") for found, _ in own], trials.n_trials)
    lower = comparison.lower_bounds(delta)
    for trial, deflation, (found, notes), corrected in zip(trials.known, deflations, own, adjusted, strict=True):
        row: dict[str, object] = {**shared, **_window(trial), "run_id": trial.name}
        if trial.unranked_reason:
            rows.append(row | {"note": trial.unranked_reason})
            continue
        reference = trial.reference(against)
        low, high = bounds[trial.name, against]
        model, model_notes = _alpha_and_beta(trial, against)
        all_notes = [*deflation.notes, *comparison.exclusion_notes(trial), *model_notes, *notes]
        row |= {
            "reference": reference[0] if reference else None,
            "sharpe": trial.sharpe[against] * sqrt(trial.periods_per_year),
            "sharpe_low": low,
            "sharpe_high": high,
            "rademacher_lower": lower.get(trial.name),
        }
        rows.append({**row, **found, **corrected, **model, "note": "; ".join(all_notes) or None})
    return rows


def _window(trial: Trial) -> dict[str, object]:
    """First and last session and number of sessions of a trial."""
    days = trial.sessions
    ends = {"first_session": days[0].item(), "last_session": days[-1].item()} if len(days) else {}
    return {**ends, "n_sessions": len(days)}


def _adjusted_p_values(p_values: Sequence[float | None], n_trials: int) -> list[dict[str, float]]:
    """Adjust the known p values for all trials ever run; unknown ones count as 1."""
    every = np.ones(n_trials)
    every[: len(p_values)] = [1.0 if p_value is None else p_value for p_value in p_values]
    adjusted = {correction: adjusted_p_values(every, correction) for correction in _CORRECTIONS}
    return [
        {} if p_value is None else {correction: float(values[i]) for correction, values in adjusted.items()}
        for i, p_value in enumerate(p_values)
    ]


def _inference(trial: Trial, against: Against, deflation: Deflation) -> tuple[dict[str, float], list[str]]:
    """Sharpe inference of one trial, and notes on missing figures."""
    try:
        moments = sharpe_moments(trial.returns(against))
        fields = {"probabilistic_sharpe": probabilistic_sharpe_ratio(moments), "p_value": sharpe_p_value(moments)}
        fields |= deflation.apply(moments, trial.periods_per_year)
    except ValueError as error:
        return {}, [str(error)]
    if moments.sharpe <= 0.0:
        ratio = "Sharpe ratio" if against == "zero" else "information ratio"
        return fields, [f"no record is long enough: its {ratio} is not positive"]
    return {**fields, "minimum_track_record_length": minimum_track_record_length(moments)}, []


def _alpha_and_beta(trial: Trial, against: Against) -> tuple[dict[str, float], list[str]]:
    """Alpha and beta over the reference, and notes; empty against zero."""
    reference = trial.reference(against)
    if reference is None:
        return {}, []
    try:
        model = market_model(trial.net, reference[1], trial.periods_per_year)
    except ValueError as error:
        return {}, [str(error)]
    fields = {"alpha_per_year": model.alpha_per_year, "beta": model.beta}
    if model.alpha_t is None:
        return fields, ["alpha has no t statistic: the returns are beta times those of the reference"]
    return {**fields, "alpha_t": model.alpha_t}, []
