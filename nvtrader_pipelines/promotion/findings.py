"""What speaks against promoting the best-ranked run of a market: too little beyond luck, or overfitting."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from nvtrader_pipelines.components.ids import short_id

LEAST_DEFLATED = 0.95  # active deflated Sharpe ratio below which luck explains it as well; our choice
MOST_OVERFITTING = 0.5  # the best in sample is then no better than the median out of sample
ACTIVE = {"best_baseline": "its best baseline", "anchor": "its own anchor"}  # never returns over zero
PERIOD = "all"
FINDINGS = {
    "figure": pl.String,
    "source": pl.String,
    "against": pl.String,
    "value": pl.Float64,
    "passed": pl.Boolean,
    "sentence": pl.String,
}
DEFLATED, OVERFITTING = "active deflated Sharpe ratio", "probability of overfitting"


@dataclass(frozen=True)
class Finding:
    """One figure of a market, held against its limit."""

    figure: str
    source: str
    against: str  # best_baseline or anchor
    value: float | None  # None where it cannot be computed
    passed: bool  # what cannot be computed does not pass
    sentence: str


def deflated_findings(curve: pl.DataFrame, validation: pl.DataFrame) -> list[Finding]:
    """The active deflated Sharpe ratios of the best-ranked run of each source, over best baseline and anchor.

    Args:
        curve: rows of the Sharpe ratio curve: run_id, period, rank; one without a rank is no candidate.
        validation: rows of the validation: source, period, run_id, experiment, against, reference, n_trials, sharpe,
            deflated_sharpe, note.
    """
    places = curve.filter(pl.col("rank").is_not_null()).select("run_id", "period", "rank")
    ranked = validation.join(places, on=["run_id", "period"])
    active = ranked.filter(pl.col("period") == PERIOD, pl.col("against").is_in(list(ACTIVE)))
    best = active.filter(pl.col("run_id") == pl.col("run_id").sort_by("rank", "run_id").first().over("source"))
    return [_deflated(row) for row in best.sort("source", pl.col("against") != "best_baseline").iter_rows(named=True)]


def overfitting_findings(overfitting: pl.DataFrame) -> list[Finding]:
    """The probability of backtest overfitting of each source, of returns over best baseline and anchor.

    Args:
        overfitting: rows of the overfitting table: source, period, against, n_trials, n_compared,
            probability_of_overfitting, note.
    """
    active = overfitting.filter(pl.col("period") == PERIOD, pl.col("against").is_in(list(ACTIVE)))
    return [_overfit(row) for row in active.sort("source", pl.col("against") != "best_baseline").iter_rows(named=True)]


def told(value: float, limit: float) -> str:
    """A probability as text, to two digits or as many more as tell it from its limit."""
    texts = (f"{value:.{digits}f}" for digits in range(2, 16))
    return next((text for text in texts if float(text) != limit or value == limit), str(value))


def _deflated(row: Mapping[str, Any]) -> Finding:
    value, over = row["deflated_sharpe"], ACTIVE[row["against"]]
    run = f"{row['source']}: {row['experiment']} (run {short_id(row['run_id'])}), the best ranked of {_trials(row)},"
    if value is None:
        said = f"{run} has no active deflated Sharpe ratio over {over}, it cannot be computed: {row['note']}"
        return Finding(DEFLATED, row["source"], row["against"], None, passed=False, sentence=said)
    passed = value >= LEAST_DEFLATED
    verdict = "at least" if passed else "less than"
    said = (
        f"{run} has a Sharpe ratio of {row['sharpe']:+.2f} over {over} ({row['reference']}); that it is more than the "
        f"luck of so many trials has probability {told(value, LEAST_DEFLATED)}, {verdict} {LEAST_DEFLATED}"
    )
    return Finding(DEFLATED, row["source"], row["against"], value, passed, said)


def _overfit(row: Mapping[str, Any]) -> Finding:
    value, over = row["probability_of_overfitting"], ACTIVE[row["against"]]
    if value is None:
        why = "with one trial there is nothing to choose from" if row["n_trials"] == 1 else row["note"]
        said = f"{row['source']}: the probability of overfitting over {over} cannot be computed: {why}"
        return Finding(OVERFITTING, row["source"], row["against"], None, passed=False, sentence=said)
    passed = value <= MOST_OVERFITTING
    verdict = "not more than" if passed else "more than"
    said = (
        f"{row['source']}: of {row['n_compared']} trials compared the best over {over} in one half of the sessions is "
        "in the worse half of the trials in the other with probability "
        f"{told(value, MOST_OVERFITTING)}, {verdict} {MOST_OVERFITTING}"
    )
    return Finding(OVERFITTING, row["source"], row["against"], value, passed, said)


def _trials(row: Mapping[str, Any]) -> str:
    return "1 trial" if row["n_trials"] == 1 else f"{row['n_trials']} trials"
