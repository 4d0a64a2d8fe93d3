"""Verdict on a run in words: whether it beats its best baseline, and the deflated ratios."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from nvtrader_pipelines.evaluation.timing_luck import Range, difference_range
from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.promotion.findings import ASKED, MIN_DEFLATED, REFERENCES, describe_period, format_probability
from nvtrader_pipelines.runs.run_tables import WALK_FORWARD
from nvtrader_pipelines.scoreboard.board import with_openings
from nvtrader_pipelines.service.documents.short_samples import is_short, short_note
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import VALIDATION

EQUAL_WEIGHT = "equal_weight"


def run_verdict(store: Store, run: LedgerRun, figures: pl.DataFrame) -> str:
    """Verdict on a run in the reported period, deflated for all trials, in words.

    Args:
        store: the store.
        run: the run.
        figures: rows of its verdict by account and period.
    """
    if figures.is_empty():
        return "no verdict: the run is deleted" if run.deleted_at else f"no verdict yet: the run is {run.status}"
    period = reported_period(figures["period"])
    accounts = figures.filter(period=period)
    own = with_openings(store, accounts).filter(kind="ensemble").row(0, named=True)
    over_openings = difference_range(own["openings"] or (), own["baseline_openings"] or ())
    if is_short(own):
        return f"no verdict: {short_note([own['n_sessions']])}"
    if own["best_baseline"] is None:
        return f"{own['policy']} has no baseline to beat; net Sharpe ratio {_format_bounds(own, 'sharpe', '.2f')}"
    rows = store.tables.read(VALIDATION, {"run_id": [run.run_id]}).filter(period=period)
    over = {row["against"]: row for row in rows.filter(pl.col("against").is_in(REFERENCES)).to_dicts()}
    deflated = [_deflation_sentence(row) for row in over.values()]
    parts = [
        f"{own['policy']} {_claim(over.get('best_baseline'), over_openings)} its best baseline, "
        f"{own['best_baseline']}, {describe_period(period)}: net Sharpe ratio {_format_bounds(own, 'sharpe', '.2f')}, "
        f"difference to the best baseline's {_format_bounds(own, 'sharpe_difference', '+.2f')}",
        *([f"{low:+.2f} to {high:+.2f} over the openings" for low, high in [over_openings]] if over_openings else []),
        *_equal_weight(accounts, own["best_baseline"]),
        *dict.fromkeys(deflated or [_reason_not_deflated(run)]),
    ]
    return "; ".join(["the run is deleted, its verdict remains", *parts] if run.deleted_at else parts)


def _reason_not_deflated(run: LedgerRun) -> str:
    if run.kind != WALK_FORWARD:
        return f"not deflated: a {run.kind} run is no trial"
    return "no longer deflated" if run.deleted_at else "not deflated yet: `nvtrader materialize` validates all runs"


def _claim(row: Mapping[str, Any] | None, over_openings: Range | None) -> str:
    probability = row["deflated_sharpe"] if row else None
    is_timing_luck = over_openings is not None and over_openings[0] <= 0.0
    is_shown = probability is not None and probability >= MIN_DEFLATED and not is_timing_luck
    return "beats" if is_shown else "is not shown to beat"


def _equal_weight(accounts: pl.DataFrame, best_baseline: str) -> list[str]:
    """Sharpe ratio of 1/N, where it is not the best baseline."""
    found = accounts.filter(policy=EQUAL_WEIGHT)["sharpe"].drop_nulls()
    return [f"{EQUAL_WEIGHT} has {found[0]:.2f}"] if len(found) and best_baseline != EQUAL_WEIGHT else []


def _deflation_sentence(row: Mapping[str, Any]) -> str:
    """Information ratio against a reference, deflated for the trials."""
    if row["deflated_sharpe"] is None:
        return f"no deflated information ratio against {row['reference']}: {row['note']}"
    trials = "1 trial" if row["n_trials"] == 1 else f"{row['n_trials']} trials"
    return (
        f"information ratio {row['sharpe']:+.2f} against {row['reference']}, deflated for {trials}: probability "
        f"{format_probability(row['deflated_sharpe'], MIN_DEFLATED)} ({ASKED})"
    )


def _format_bounds(row: Mapping[str, Any], name: str, form: str) -> str:
    if row[name] is None:
        return "undefined"
    return f"{row[name]:{form}} [{row[f'{name}_low']:{form}}, {row[f'{name}_high']:{form}}]"
