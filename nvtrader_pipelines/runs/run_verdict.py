"""Verdict on a run: whether it beats its best baseline, and the deflated ratios, also in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import polars as pl

from nvtrader_pipelines.evaluation.findings import ASKED, MIN_DEFLATED, REFERENCES, describe_period, format_probability
from nvtrader_pipelines.evaluation.formats import format_estimate
from nvtrader_pipelines.evaluation.short_samples import is_short, short_note
from nvtrader_pipelines.evaluation.timing_luck import Range, difference_range
from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.runs.run_queries import with_openings
from nvtrader_pipelines.runs.run_tables import WALK_FORWARD
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, VALIDATION

EQUAL_WEIGHT = "equal_weight"


class Claim(StrEnum):
    """What the tests of a run show about it and its best baseline."""

    BEATS = "beats its best baseline"
    NOT_SHOWN = "not shown to beat its best baseline"
    NONE = "no verdict"


@dataclass(frozen=True)
class RunVerdict:
    """Verdict on a run in its reported period."""

    period: str
    account: Mapping[str, Any]  # figures of the run's account
    over: Mapping[str, Mapping[str, Any]]  # rows of the validation by reference

    @classmethod
    def of(cls, figures: pl.DataFrame, validation: pl.DataFrame) -> "RunVerdict":
        """Make the verdict of a run from its figures, see `with_openings`, and its rows of the validation."""
        period = reported_period(figures["period"])
        account = figures.filter(period=period, kind="ensemble").row(0, named=True)
        rows = validation.filter(pl.col("against").is_in(REFERENCES), period=period)
        return cls(period, account, {row["against"]: row for row in rows.to_dicts()})

    @classmethod
    def read(cls, store: Store, run_id: str, figures: pl.DataFrame | None = None) -> "RunVerdict":
        """Read the verdict on a run that has one; its figures, if they are not given."""
        run = {"run_id": [run_id]}
        rows = store.tables.read(EVALUATIONS, run) if figures is None else figures
        return cls.of(with_openings(store, rows), store.tables.read(VALIDATION, run))

    @property
    def deflated(self) -> float | None:
        """Deflated information ratio over the best baseline, a probability."""
        return self.over.get("best_baseline", {}).get("deflated_sharpe")

    @property
    def over_openings(self) -> Range | None:
        """Range over the openings of the difference to the Sharpe ratio of the best baseline."""
        return difference_range(self.account["openings"] or (), self.account["baseline_openings"] or ())

    @property
    def claim(self) -> Claim:
        """Claim by the deflated ratio, unless some opening was no better; none of a short window."""
        if is_short(self.account):
            return Claim.NONE
        openings = self.over_openings
        is_timing_luck = openings is not None and openings[0] <= 0.0
        is_shown = self.deflated is not None and self.deflated >= MIN_DEFLATED and not is_timing_luck
        return Claim.BEATS if is_shown else Claim.NOT_SHOWN


def read_verdicts(store: Store) -> dict[str, RunVerdict]:
    """Read the verdicts of all runs by run."""
    figures = store.tables.read(EVALUATIONS).filter(pl.col("period") != "fold")
    by_run = with_openings(store, figures).partition_by("run_id", as_dict=True)
    validation = store.tables.read(VALIDATION)
    return {str(run): RunVerdict.of(rows, validation.filter(run_id=run)) for (run,), rows in by_run.items()}


def run_verdict(store: Store, run: LedgerRun, figures: pl.DataFrame) -> str:
    """Verdict on a run in the reported period, deflated for all trials, in words.

    Args:
        store: the store.
        run: the run.
        figures: rows of its verdict by account and period.
    """
    if figures.is_empty():
        return "no verdict: the run is deleted" if run.deleted_at else f"no verdict yet: the run is {run.status}"
    verdict = RunVerdict.read(store, run.run_id, figures)
    own, openings = verdict.account, verdict.over_openings
    if verdict.claim is Claim.NONE:
        return f"no verdict: {short_note([own['n_sessions']])}"
    sharpe = format_estimate(own, unknown="undefined")
    if own["best_baseline"] is None:
        return f"{own['policy']} has no baseline to beat; net Sharpe ratio {sharpe}"
    deflated = [_deflation_sentence(row) for row in verdict.over.values()]
    parts = [
        f"{own['policy']} {'beats' if verdict.claim is Claim.BEATS else 'is not shown to beat'} its best baseline, "
        f"{own['best_baseline']}, {describe_period(verdict.period)}: net Sharpe ratio {sharpe}, "
        f"difference to the best baseline's {format_estimate(own, 'sharpe_difference', '+.2f', 'undefined')}",
        *([f"{low:+.2f} to {high:+.2f} over the openings" for low, high in [openings]] if openings else []),
        *_equal_weight(figures.filter(period=verdict.period), own["best_baseline"]),
        *dict.fromkeys(deflated or [_reason_not_deflated(run)]),
    ]
    return "; ".join(["the run is deleted, its verdict remains", *parts] if run.deleted_at else parts)


def _reason_not_deflated(run: LedgerRun) -> str:
    if run.kind != WALK_FORWARD:
        return f"not deflated: a {run.kind} run is no trial"
    return "no longer deflated" if run.deleted_at else "not deflated yet: `nvtrader materialize` validates all runs"


def _equal_weight(accounts: pl.DataFrame, best_baseline: str) -> list[str]:
    """Sharpe ratio of 1/N, where it is not the best baseline."""
    ratios = accounts.filter(policy=EQUAL_WEIGHT)["sharpe"].drop_nulls()
    return [f"{EQUAL_WEIGHT} has {ratios[0]:.2f}"] if len(ratios) and best_baseline != EQUAL_WEIGHT else []


def _deflation_sentence(row: Mapping[str, Any]) -> str:
    """Information ratio against a reference, deflated for the trials."""
    if row["deflated_sharpe"] is None:
        return f"no deflated information ratio against {row['reference']}: {row['note']}"
    trials = "1 trial" if row["n_trials"] == 1 else f"{row['n_trials']} trials"
    return (
        f"information ratio {row['sharpe']:+.2f} against {row['reference']}, deflated for {trials}: probability "
        f"{format_probability(row['deflated_sharpe'], MIN_DEFLATED)} ({ASKED})"
    )
