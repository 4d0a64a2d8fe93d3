"""Values, scores and notes of every statistic by policy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.prudex.measures import RANKED, SCORED, STATISTICS
from nvtrader_pipelines.evaluation.prudex.policy_runs import PolicyRuns, comparable
from nvtrader_pipelines.evaluation.prudex.record import BASELINE, REFERENCE, SEED
from nvtrader_pipelines.evaluation.prudex.reliability import (
    TAUS,
    area_under_profile,
    expected_rank,
    performance_profile,
    profile_band,
    rank_distribution,
)
from nvtrader_pipelines.evaluation.prudex.scores import share_ahead, with_scores
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, value_or_reason
from nvtrader_pipelines.evaluation.verdict_tables import PRUDEX
from nvtrader_pipelines.market.calendar import Calendars

ANSWERS = PRUDEX.only("policy", "kind", "statistic", "value", "score", "note")
PROFILES = {
    "policy": pl.String,
    "kind": pl.String,
    "tau": pl.Float64,
    "share": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}
RANKS = {"policy": pl.String, "kind": pl.String, "statistic": pl.String, "rank": pl.Int32, "share": pl.Float64}
NO_MARKET = f"no score: the run has no baseline {REFERENCE}, the market average"
ONE_SEED = "single seed or path; see the row of its experiment"
KINDS = ("countries", "asset_types", "time_scales")  # statistics of universality that group markets
Row = tuple[Any, ...]  # by ANSWERS


def table_of(rows: Sequence[Row], schema: Mapping[str, Any] = ANSWERS) -> pl.DataFrame:
    """Build a frame from rows."""
    return pl.DataFrame(rows, schema=schema, orient="row")


def window_measures(scored: pl.DataFrame) -> pl.DataFrame:
    """Mean over test windows and markets; the note counts windows without a value, with the reason."""
    n_missing, n_rows, n_ruined = pl.col("value").is_null().sum(), pl.len(), pl.col("ruined").sum()
    reason = pl.col("note").drop_nulls().first()
    ruin_note = pl.col("note").filter("ruined").first()
    gaps = (
        pl.when(n_ruined > 0)
        .then(pl.format("{} of {} windows score 0: {}", n_ruined, n_rows, ruin_note))
        .when(n_missing == 0)
        .then(pl.lit(None, dtype=pl.String))
        .when(n_missing == n_rows)
        .then(reason)
        .otherwise(pl.format("{} of {} windows left out: {}", n_missing, n_rows, reason))
    )
    is_scored = pl.col("statistic").first().is_in(list(SCORED))
    has_no_market = is_scored & pl.col("value").is_not_null().any() & pl.col("market").is_null().all()
    return (
        scored.group_by("policy", "kind", "statistic", maintain_order=True)
        .agg(
            pl.col("value").mean(),
            pl.col("score").mean(),
            pl.when(has_no_market).then(pl.lit(NO_MARKET)).otherwise(gaps).alias("note"),
        )
        .select(*ANSWERS)
    )


def universality_measures(scored: pl.DataFrame, markets: Sequence[str], calendars: Calendars) -> pl.DataFrame:
    """Markets, their kinds and windows of an account, counted and scored by the share with a Sharpe ratio above 1/N.

    Markets and kinds are counted out of those of all `markets`; the ratio of a kind is the mean of its markets.
    """
    ratios = scored.filter(pl.col("statistic") == "sharpe", pl.col("fold").is_not_null())
    all_kinds = _kinds_of(markets, calendars)
    rows: list[Row] = []
    for who, own in ratios.partition_by("policy", "kind", as_dict=True, maintain_order=True).items():
        own_markets = own.group_by("source").agg(pl.col("ranked", "market").mean()).sort("source")
        for statistic, values, n_all in (("markets", own_markets, len(markets)), ("windows", own, len(own))):
            score, reason = _score_above_market(values)
            note = f"{len(values)} of {n_all}: {reason}" if reason else None
            rows.append((*who, statistic, float(len(values)), score, note))
        kinds = own_markets.join(all_kinds, on="source", maintain_order="left")
        for statistic in KINDS:
            values = kinds.group_by(statistic).agg(pl.col("ranked", "market").mean(), "source").sort(statistic)
            score, reason = _score_above_market(values)
            judged = ", ".join(f"{label} ({', '.join(of)})" for label, of in values.select(statistic, "source").rows())
            count = f"{len(values)} of {all_kinds[statistic].n_unique()}: {judged}"
            rows.append((*who, statistic, float(len(values)), score, f"{count}; {reason}" if reason else count))
    return table_of(rows)


def _kinds_of(markets: Sequence[str], calendars: Calendars) -> pl.DataFrame:
    """Kinds of each market: source and KINDS."""
    every = [(source, calendars.of(source)) for source in markets]
    rows = [(source, calendar.country, calendar.asset_type, "daily") for source, calendar in every]
    return pl.DataFrame(rows, schema=dict.fromkeys(("source", *KINDS), pl.String), orient="row")


def _score_above_market(values: pl.DataFrame) -> tuple[float | None, str | None]:
    if values["market"].has_nulls():
        return None, NO_MARKET
    return value_or_reason(lambda: 100.0 * share_ahead(values["ranked"].to_numpy(), values["market"].to_numpy()))


def profile_measures(runs: Sequence[PolicyRuns], seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Area under the performance profile of each policy (ANSWERS), and the profiles (PROFILES)."""
    answers: list[Row] = []
    profiles: list[Row] = []
    for number, run in enumerate(runs):
        scores = list(run.by_task.values())
        area = area_under_profile(scores)
        shares = performance_profile(scores)
        try:
            low, high = profile_band(scores, np.random.default_rng([seed, number]))
            note = None
        except UndefinedStatisticError as error:
            low = high = np.full(len(TAUS), None)
            note = f"no band: {error}"
        answers.append((run.policy, run.kind, "area_under_profile", area, 100.0 * area, note))
        profiles += [(run.policy, run.kind, *row) for row in zip(TAUS, shares, low, high, strict=True)]
    return table_of(answers), table_of(profiles, PROFILES)


def rank_measures(ranked: dict[str, list[PolicyRuns]], seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Expected rank by each of RANKED (ANSWERS), and rank distributions (RANKS).

    Ranks are among the largest group of policies with common test windows; others have none.
    """
    answers, ranks = [table_of(())], [table_of((), RANKS)]
    for number, name in enumerate(RANKED):
        if not ranked[name]:
            continue
        group, tasks = comparable(ranked[name])
        sign = 1.0 if STATISTICS[name].higher_is_better else -1.0
        values = [[sign * run.by_task[task] for task in tasks] for run in group]
        shares = rank_distribution(values, np.random.default_rng([seed, number]))
        rows = [
            (run.policy, run.kind, name, rank, share)
            for run, distribution in zip(group, shares, strict=True)
            for rank, share in enumerate(distribution, 1)
        ]
        ranks.append(table_of(rows, RANKS))
        answers.append(_expected_rank_rows(name, group, expected_rank(shares).tolist()))
        answers.append(_unranked_rows(name, [run for run in ranked[name] if run not in group], len(group)))
    return pl.concat(answers), pl.concat(ranks)


def _expected_rank_rows(name: str, group: Sequence[PolicyRuns], expected: Sequence[float]) -> pl.DataFrame:
    where = {(run.policy, run.kind): rank for run, rank in zip(group, expected, strict=True)}
    market = where.get((REFERENCE, BASELINE))
    note = f"no score: {REFERENCE} is not among the policies ranked" if market is None else None
    rows = [(*who, f"rank:{name}", rank, market, note) for who, rank in where.items()]
    schema = {
        name: ANSWERS.get(name, pl.Float64) for name in ("policy", "kind", "statistic", "value", "market", "note")
    }
    return with_scores(table_of(rows, schema), task=()).select(*ANSWERS)


def _unranked_rows(name: str, others: Sequence[PolicyRuns], n_ranked: int) -> pl.DataFrame:
    note = f"its test windows differ from those of the {n_ranked} ranked policies"
    return table_of([(other.policy, other.kind, f"rank:{name}", None, None, note) for other in others])


def single_seed_measures(judged: pl.DataFrame) -> pl.DataFrame:
    """Rows of statistics that single seeds do not have."""
    seeds = judged.filter(pl.col("kind") == SEED).select("policy", "kind").unique(maintain_order=True)
    names = ("area_under_profile", "seed_deviation", *(f"rank:{name}" for name in RANKED))
    return table_of([(*who, name, None, None, ONE_SEED) for who in seeds.iter_rows() for name in names])
