"""Findings on a market's best-ranked run before promotion: deflation and overfitting."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.verdict_tables import reported_period

MIN_DEFLATED = 0.95  # deflated information ratio below which luck is a likely explanation; our choice
ASKED = f"the check asks for at least {MIN_DEFLATED}"  # the gate only with `require_deflated`
MAX_OVERFITTING = 0.5  # probability at which the best in sample is at the median out of sample
REFERENCES = ("best_baseline", "anchor")  # references of residual returns
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
    """Figure of a market in its reported period, compared with its limit."""

    figure: str
    source: str
    period: str  # from_<year>, or all without a reported period
    against: str  # best_baseline or anchor
    value: float | None  # None if it cannot be computed
    passed: bool  # False without a value
    sentence: str


def deflated_findings(curve: pl.DataFrame, validation: pl.DataFrame) -> list[PromotionFinding]:
    """Deflated information ratios of each source's best-ranked run, against best baseline and anchor.

    Rank and ratio are of the source's reported period, as earlier sessions were tuned on.

    Args:
        curve: rows of the Sharpe ratio curve: run_id, period, rank; a run without a rank is no candidate.
        validation: rows of the validation: source, period, run_id, experiment, against, reference, n_trials, sharpe,
            deflated_sharpe, note.
    """
    places = curve.filter(pl.col("rank").is_not_null()).select("run_id", "period", "rank")
    compared = _reported_rows(validation.join(places, on=["run_id", "period"]))
    best = compared.filter(pl.col("run_id") == pl.col("run_id").sort_by("rank", "run_id").first().over("source"))
    return [
        _deflation_finding(row)
        for row in best.sort("source", pl.col("against") != "best_baseline").iter_rows(named=True)
    ]


def overfitting_findings(overfitting: pl.DataFrame) -> list[PromotionFinding]:
    """Probabilities of backtest overfitting of each source, of residual returns in its reported period.

    Args:
        overfitting: rows of the overfitting table: source, period, against, n_trials, n_compared,
            probability_of_overfitting, note.
    """
    return [
        _overfit(row)
        for row in _reported_rows(overfitting)
        .sort("source", pl.col("against") != "best_baseline")
        .iter_rows(named=True)
    ]


def deflated_ratio(validation: pl.DataFrame, run_id: str, period: str) -> float | None:
    """Deflated information ratio of a run over its best baseline in a period; None if unknown."""
    rows = validation.filter(run_id=run_id, period=period, against="best_baseline")
    return rows["deflated_sharpe"][0] if len(rows) else None


def format_probability(value: float, threshold: float) -> str:
    """Format a probability with two digits, or more where it would round to the threshold."""
    texts = (f"{value:.{digits}f}" for digits in range(2, 16))
    return next((text for text in texts if float(text) != threshold or value == threshold), str(value))


def _reported_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Select the rows of residual returns in each source's reported period."""
    compared = rows.filter(pl.col("against").is_in(REFERENCES))
    parts = compared.partition_by("source", maintain_order=True)
    return pl.concat([compared.clear(), *(part.filter(period=reported_period(part["period"])) for part in parts)])


def _deflation_finding(row: Mapping[str, Any]) -> PromotionFinding:
    value, over = row["deflated_sharpe"], row["reference"]
    if row["against"] == "best_baseline":
        over = f"its best baseline ({over})"
    trials = "1 trial" if row["n_trials"] == 1 else f"{row['n_trials']} trials"
    name = f"{row['experiment']} (run {short_id(row['run_id'])})"
    run = f"{_describe_market(row)}: {name}, the best ranked of {trials},"
    finding = partial(PromotionFinding, DEFLATED, row["source"], row["period"], row["against"], value)
    if value is None:
        return finding(passed=False, sentence=f"{run} has no deflated information ratio against {over}: {row['note']}")
    passed = value >= MIN_DEFLATED
    sentence = (
        f"{run} has an information ratio of {row['sharpe']:+.2f} against {over}, deflated for the trials: "
        f"probability {format_probability(value, MIN_DEFLATED)} ({ASKED})"
    )
    return finding(passed=passed, sentence=sentence)


def _overfit(row: Mapping[str, Any]) -> PromotionFinding:
    value = row["probability_of_overfitting"]
    over = "their best baselines" if row["against"] == "best_baseline" else "their anchors, else 1/N,"
    finding = partial(PromotionFinding, OVERFITTING, row["source"], row["period"], row["against"], value)
    if value is None:
        why = "one trial leaves no choice" if row["n_trials"] == 1 else row["note"]
        return finding(
            passed=False,
            sentence=f"{_describe_market(row)}: the probability of overfitting against {over} is unknown: {why}",
        )
    passed = value <= MAX_OVERFITTING
    sentence = (
        f"{_describe_market(row)}: the best of {row['n_compared']} trials against {over} on one half of the sessions "
        f"ranks in the worse half on the other with probability {format_probability(value, MAX_OVERFITTING)} (allowed: "
        f"at most {MAX_OVERFITTING})"
    )
    return finding(passed=passed, sentence=sentence)


def _describe_market(row: Mapping[str, Any]) -> str:
    """Market and reported period in words."""
    return f"{row['source']}, {describe_period(row['period'])}"


def describe_period(period: str) -> str:
    """Describe a period of verdicts in words."""
    return "all sessions" if period == "all" else f"reported period {period.replace('_', ' ')}"
