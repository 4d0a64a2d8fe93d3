"""Findings against promoting the best-ranked run of a market: too little beyond luck, or overfitting."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.evaluation.trial_validation import reported_period

MIN_DEFLATED = 0.95  # deflated information ratio below which luck explains it as well; our choice
MAX_OVERFITTING = 0.5  # the best in sample is then no better than the median out of sample
ACTIVE = {"best_baseline": "its best baseline", "anchor": "its own anchor"}  # never returns over zero
FINDINGS = {
    "figure": pl.String,
    "source": pl.String,
    "period": pl.String,
    "against": pl.String,
    "value": pl.Float64,
    "passed": pl.Boolean,
    "sentence": pl.String,
}
DEFLATED, OVERFITTING = "deflated information ratio", "probability of overfitting"


@dataclass(frozen=True)
class PromotionFinding:
    """One figure of a market in its reported period, held against its limit."""

    figure: str
    source: str
    period: str  # from_<year>, or all where no session is reported apart
    against: str  # best_baseline or anchor
    value: float | None  # None where it cannot be computed
    passed: bool  # what cannot be computed does not pass
    sentence: str


def deflated_findings(curve: pl.DataFrame, validation: pl.DataFrame) -> list[PromotionFinding]:
    """Deflated information ratios of each source's best-ranked run, against best baseline and anchor.

    Both the rank and the ratio are those of the source's reported period: what was tuned on is no evidence.

    Args:
        curve: rows of the Sharpe ratio curve: run_id, period, rank; one without a rank is no candidate.
        validation: rows of the validation: source, period, run_id, experiment, against, reference, n_trials, sharpe,
            deflated_sharpe, note.
    """
    places = curve.filter(pl.col("rank").is_not_null()).select("run_id", "period", "rank")
    ranked = validation.join(places, on=["run_id", "period"])
    active = _reported(ranked)
    best = active.filter(pl.col("run_id") == pl.col("run_id").sort_by("rank", "run_id").first().over("source"))
    return [_deflated(row) for row in best.sort("source", pl.col("against") != "best_baseline").iter_rows(named=True)]


def overfitting_findings(overfitting: pl.DataFrame) -> list[PromotionFinding]:
    """Probabilities of backtest overfitting of each source, of active returns in its reported period.

    Args:
        overfitting: rows of the overfitting table: source, period, against, n_trials, n_compared,
            probability_of_overfitting, note.
    """
    return [
        _overfit(row)
        for row in _reported(overfitting).sort("source", pl.col("against") != "best_baseline").iter_rows(named=True)
    ]


def format_probability(value: float, limit: float) -> str:
    """A probability as text, to two digits or as many more as tell it from its limit."""
    texts = (f"{value:.{digits}f}" for digits in range(2, 16))
    return next((text for text in texts if float(text) != limit or value == limit), str(value))


def _reported(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of each source in its reported period, of active returns."""
    active = rows.filter(pl.col("against").is_in(list(ACTIVE)))
    parts = active.partition_by("source", maintain_order=True)
    return pl.concat([active.clear(), *(part.filter(period=reported_period(part["period"])) for part in parts)])


def _deflated(row: Mapping[str, Any]) -> PromotionFinding:
    value, over = row["deflated_sharpe"], ACTIVE[row["against"]]
    run = f"{_where(row)}: {row['experiment']} (run {short_id(row['run_id'])}), the best ranked of {_trials(row)},"
    found = partial(PromotionFinding, DEFLATED, row["source"], row["period"], row["against"], value)
    if value is None:
        return found(
            passed=False,
            sentence=f"{run} has no deflated information ratio against {over}, it cannot be computed: {row['note']}",
        )
    passed = value >= MIN_DEFLATED
    verdict = "at least" if passed else "less than"
    sentence = (
        f"{run} has an information ratio of {row['sharpe']:+.2f} against {over} ({row['reference']}); that it is more "
        f"than the luck of so many trials has probability {format_probability(value, MIN_DEFLATED)}, {verdict} "
        f"{MIN_DEFLATED}"
    )
    return found(passed=passed, sentence=sentence)


def _overfit(row: Mapping[str, Any]) -> PromotionFinding:
    value, over = row["probability_of_overfitting"], ACTIVE[row["against"]]
    found = partial(PromotionFinding, OVERFITTING, row["source"], row["period"], row["against"], value)
    if value is None:
        why = "with one trial there is nothing to choose from" if row["n_trials"] == 1 else row["note"]
        return found(
            passed=False,
            sentence=f"{_where(row)}: the probability of overfitting against {over} cannot be computed: {why}",
        )
    passed = value <= MAX_OVERFITTING
    verdict = "not more than" if passed else "more than"
    sentence = (
        f"{_where(row)}: of {row['n_compared']} trials compared the best against {over} in one half of the sessions is "
        "in the worse half of the trials in the other with probability "
        f"{format_probability(value, MAX_OVERFITTING)}, {verdict} {MAX_OVERFITTING}"
    )
    return found(passed=passed, sentence=sentence)


def _where(row: Mapping[str, Any]) -> str:
    """The market and the period that is judged."""
    return f"{row['source']}, {describe_period(row['period'])}"


def describe_period(period: str) -> str:
    """A period of verdicts in words."""
    return "all sessions" if period == "all" else f"reported period {period.replace('_', ' ')}"


def _trials(row: Mapping[str, Any]) -> str:
    return "1 trial" if row["n_trials"] == 1 else f"{row['n_trials']} trials"
