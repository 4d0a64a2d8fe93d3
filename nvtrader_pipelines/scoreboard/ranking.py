"""Ranking of entrants by net Sharpe ratio within each contest, with their previous rank."""

from collections.abc import Mapping

import polars as pl

SCORECARD = {  # one scoring of one entrant
    "judgement": pl.String,
    "contest": pl.String,
    "entrant": pl.String,
    "kind": pl.String,
    "source": pl.String,
    "panel_digest": pl.String,
    "first_session": pl.Date,
    "last_session": pl.Date,
    "n_sessions": pl.Int64,
    "rebal_freq": pl.Int32,
    "train_first": pl.Date,
    "train_last": pl.Date,
    "run_id": pl.String,
    "sharpe": pl.Float64,
    "sharpe_low": pl.Float64,
    "sharpe_high": pl.Float64,
    "cagr": pl.Float64,
    "volatility": pl.Float64,
    "max_drawdown": pl.Float64,
    "turnover_per_year": pl.Float64,
    "cost_per_year": pl.Float64,
    "best_baseline": pl.String,
    "sharpe_difference": pl.Float64,
    "difference_low": pl.Float64,
    "difference_high": pl.Float64,
    "active_sharpe": pl.Float64,
    "active_low": pl.Float64,
    "active_high": pl.Float64,
    "probabilistic_sharpe": pl.Float64,
    "active_deflated_sharpe": pl.Float64,
    "n_trials": pl.Int32,
    "worst_scenario": pl.String,
    "worst_scenario_return": pl.Float64,
    "training_seconds": pl.Float64,
    "judging_seconds": pl.Float64,
    "latency_seconds": pl.Float64,
    "peak_memory_bytes": pl.Int64,
    "warnings": pl.List(pl.String),
    "note": pl.String,
    "digest": pl.String,
    "code_version": pl.String,
    "judged_at": pl.Datetime("us", "UTC"),
    "document": pl.String,
}
SCOREBOARD = {  # rank of each entrant of the last update
    "contest": pl.String,
    "source": pl.String,
    "first_session": pl.Date,
    "last_session": pl.Date,
    "n_sessions": pl.Int64,
    "rank": pl.Int32,
    "entrant": pl.String,
    "kind": pl.String,
    "sharpe": pl.Float64,
    "sharpe_low": pl.Float64,
    "sharpe_high": pl.Float64,
    "best_baseline": pl.String,
    "sharpe_difference": pl.Float64,
    "difference_low": pl.Float64,
    "difference_high": pl.Float64,
    "active_sharpe": pl.Float64,
    "active_low": pl.Float64,
    "active_high": pl.Float64,
    "active_deflated_sharpe": pl.Float64,
    "probabilistic_sharpe": pl.Float64,
    "cagr": pl.Float64,
    "max_drawdown": pl.Float64,
    "turnover_per_year": pl.Float64,
    "cost_per_year": pl.Float64,
    "previous_rank": pl.Int32,
    "previous_sharpe": pl.Float64,
    "judged_at": pl.Datetime("us", "UTC"),
    "note": pl.String,
}
_KEY = ["contest", "entrant"]


def rank_entrants(history: pl.DataFrame, latest: Mapping[str, str]) -> pl.DataFrame:
    """Rank the entrants of the last update by net Sharpe ratio, best first; refused entrants come last.

    Entrants are ranked within a contest only: sessions, costs, fills and leverage are equal. Equal Sharpe ratios share
    a rank; an entrant without one has no rank, and its note gives the reason. The previous rank and Sharpe ratio are
    those before the contest's last new scorecard, among the entrants of now: one that left changes no rank.

    Args:
        history: all rows of `SCORECARD`.
        latest: entrant to the digest of its card in the last update.
    """
    wanted = pl.DataFrame(
        {"entrant": list(latest), "digest": list(latest.values())},
        schema={"entrant": pl.String, "digest": pl.String},
    )
    now = _newest_rows(history.join(wanted, on=["entrant", "digest"], how="semi"))
    judged = now.filter(pl.col("contest").is_not_null())
    newest = judged.group_by("contest").agg(newest=pl.col("judged_at").max())
    present = history.join(wanted, on="entrant", how="semi")
    older = present.join(newest, on="contest").filter(pl.col("judged_at") < pl.col("newest"))
    before = _with_rank(_newest_rows(older)).select(*_KEY, previous_rank="rank", previous_sharpe="sharpe")
    rows = _with_rank(now).join(before, on=_KEY, how="left")
    return rows.sort("source", "rank", "entrant", nulls_last=True).select(
        pl.col(name).cast(kind) for name, kind in SCOREBOARD.items()
    )


def _newest_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Select the newest row of each entrant in each contest."""
    return rows.sort("judged_at", maintain_order=True).unique(_KEY, keep="last", maintain_order=True)


def _with_rank(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the rank within the contest."""
    return rows.with_columns(rank=pl.col("sharpe").rank("min", descending=True).over("contest").cast(pl.Int32))
