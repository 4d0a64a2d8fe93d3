"""Columns of outcomes of decisions."""

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema

_OPTIONS = {
    "proposed": "the proposed weights",
    "chosen": "the chosen weights; null if skipped or equal",
    "kept": "the holdings, untraded",
}
OUTCOME = TableSchema(
    Column("decision_id", pl.String, "identity of the decision"),
    Column("plan_id", pl.String, "plan of the decision"),
    Column("account", pl.String, "name of the account"),
    Column("session", pl.Date, "session at whose close the plan was decided"),
    Column("session_number", pl.Int64, "running number of that session in the market's calendar"),
    Column("outcome_session", pl.Date, "session five later, at whose close the outcome is known"),
    Column("by", pl.String, "person who decided"),
    Column("decision", pl.String, "approved, overridden, edited, rejected, skipped or equal"),
    Column("benchmark", pl.String, "SPY, or 1/N of the market's names where it has no SPY in these sessions"),
    Column("benchmark_return_pct", pl.Float64, "return of the benchmark from close to close, percent"),
    Column("outcome_t5_return_pct", pl.Float64, "the source's measure: equal-weighted basket of the proposal's orders"),
    Column("outcome_t5_vs_spy_pct", pl.Float64, "its return less the benchmark's"),
    Column("chosen_basket_return_pct", pl.Float64, "the same basket of the names that the chosen weights trade"),
    Column("chosen_basket_vs_spy_pct", pl.Float64, "its return less the benchmark's"),
    *(
        column
        for option, what in _OPTIONS.items()
        for column in (
            Column(f"{option}_return_pct", pl.Float64, f"net return of {what}, percent"),
            Column(f"{option}_vs_spy_pct", pl.Float64, "that return less the benchmark's"),
        )
    ),
    Column("excess_pct", pl.Float64, "chosen less proposed net return; for an approval, less that of the holdings"),
    Column("label", pl.String, "the person's side: proposed, kept, edited, skipped or equal"),
    Column("market_side", pl.String, "the side with the larger net return: proposed, kept, edited or tie"),
    Column("reason", pl.String, "the person's reason"),
    Column("weight", pl.Float64, "1; 0 for no judgement, a known outcome, an answer to a person's own plan, and a tie"),
    Column("practice", pl.Boolean, "whether its weight is 0 only because the outcome was known, as in a replay"),
)
