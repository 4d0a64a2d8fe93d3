"""PRUDEX-Compass of every policy: values, scores, notes, and the rows of its figures."""

from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.evaluation.prudex.explainability import Surrogate, surrogate_measures, surrogate_of_walk
from nvtrader_pipelines.evaluation.prudex.holdings import holding_windows, holdings
from nvtrader_pipelines.evaluation.prudex.measures import AXES, MEASURES, OF_AXIS, RANKED, RING, STATISTICS
from nvtrader_pipelines.evaluation.prudex.measures_table import (
    ANSWERS,
    profile_measures,
    rank_measures,
    single_seed_measures,
    universality_measures,
    window_measures,
)
from nvtrader_pipelines.evaluation.prudex.pictures import action_plane, weight_heatmap
from nvtrader_pipelines.evaluation.prudex.policy_runs import members, policy_runs, seed_windows
from nvtrader_pipelines.evaluation.prudex.record import BASELINE, REFERENCE, SEED, PrudexRecord, accounts
from nvtrader_pipelines.evaluation.prudex.return_windows import return_windows
from nvtrader_pipelines.evaluation.prudex.scores import with_scores
from nvtrader_pipelines.evaluation.verdict_tables import PRUDEX

_COMPARED = 2.0  # markets, countries, asset types, time scales or windows from which universality counts as reported
_WITHOUT_SCORE = {
    "final_equity": "no score: the end of a curve that rl.equity_curves holds; profit is scored as total_return",
    "trustworthiness": "no score: measures how well the figure keeps neighbors, not the policy",
    "largest_weight": "no score: the darkest cell of the heatmap; entropy and correlation are scored",
    "seed_deviation": "no score: 1/N has no seeds, and an account of one seed would score best",
    "surrogate_r2": "no score: the source does not score explainability; measures simplicity, not quality",
}
_WORST = 1e9  # beyond any account's value: ruined accounts rank last
_LOW = [statistic.name for statistic in STATISTICS.values() if not statistic.higher_is_better]
_NOT_RECORDED = "not on record: the run has no rows to compute it from"


@dataclass(frozen=True, eq=False)
class Compass:
    """Measures of all policies, and the rows of their figures."""

    table: pl.DataFrame  # PRUDEX
    profiles: pl.DataFrame  # measures_table.PROFILES
    ranks: pl.DataFrame  # measures_table.RANKS
    plane: pl.DataFrame  # pictures.PLANE
    heat: pl.DataFrame  # pictures.HEAT
    note: str  # caveats for readers


def prudex_compass(record: PrudexRecord, seed: int = 0, surrogate: Surrogate = surrogate_of_walk) -> Compass:
    """Compute every measure of every policy, seed and baseline; a score of 50 is 1/N of the same run.

    `surrogate` is `surrogate_of_walk`, or one that stores its values.

    Raises:
        ValueError: if the accounts of a run do not cover the same sessions, or a number in the record is not finite.
    """
    windows = return_windows(record)
    judged = accounts(record.runs, windows)
    who = members(judged)
    all_holdings = list(holdings(record))
    scored = _scored(pl.concat([windows, holding_windows(record, all_holdings)]), who, judged)
    compared = set(
        scored.filter(pl.col("statistic") == "entropy").select("run_id", "policy", "kind", "fold").iter_rows()
    )
    held = [walk for walk in all_holdings if (walk.run_id, walk.policy, walk.kind, walk.fold) in compared]
    ranked = {name: policy_runs(scored, who, name, "ranked") for name in RANKED}
    of_profile, profiles = profile_measures(policy_runs(scored, who, "total_return", "score"), seed)
    of_rank, ranks = rank_measures(ranked, seed)
    of_plane, plane = action_plane(held, seed)
    answers = pl.concat(
        [
            window_measures(scored),
            universality_measures(scored, record.markets, record.calendars),
            of_profile,
            of_rank,
            single_seed_measures(judged),
            of_plane,
            surrogate_measures(held, record.features, surrogate),
        ]
    )
    notes = dict.fromkeys(warning for warnings in record.runs["warnings"] for warning in warnings)
    note = "; ".join(filter(None, (record.left_out, *notes)))
    return Compass(_table(judged, answers), profiles, ranks, plane, weight_heatmap(held), note)


def axis_scores(table: pl.DataFrame) -> pl.DataFrame:
    """Score per axis and number of ring measures, of experiments and baselines in PRUDEX."""
    rows = table.filter(pl.col("kind") != SEED)
    ring = rows.filter(pl.col("measure").is_in(RING), pl.col("reported")).group_by(
        "kind", "policy", maintain_order=True
    )
    filled = ring.agg(pl.col("measure").n_unique().alias(f"measures of {len(RING)}"))
    scores = rows.filter(pl.col("measure") == OF_AXIS).pivot("axis", index=["kind", "policy"], values="score")
    return scores.with_columns(pl.col(axis).round(1) for axis in AXES if axis in scores.columns).join(
        filled, on=["kind", "policy"], how="left", maintain_order="left"
    )


def _scored(windows: pl.DataFrame, who: pl.DataFrame, judged: pl.DataFrame) -> pl.DataFrame:
    """Add market, score and ranking value to rows of WINDOWS; of equal baselines, keep the newest run's.

    Scores are scaled over all accounts of all runs, so they do not depend on the order of runs.
    """
    rows = pl.concat([windows, seed_windows(windows, who)])
    reference = rows.filter(pl.col("policy") == REFERENCE, pl.col("kind") == BASELINE, ~pl.col("ruined"))
    market = reference.select("run_id", "fold", "statistic", market="value")
    beside = rows.join(market, on=["run_id", "fold", "statistic"], how="left", nulls_equal=True)
    lost = pl.when(pl.col("ruined"))
    alive = beside.with_columns(value=lost.then(None).otherwise("value"), value_or_reason="value")
    worst = pl.when(pl.col("statistic").is_in(_LOW)).then(_WORST).otherwise(-_WORST)
    scored = with_scores(alive, task=("source", "first", "last")).with_columns(
        value="value_or_reason",
        score=lost.then(pl.when(pl.col("market").is_not_null()).then(0.0)).otherwise("score"),
        ranked=lost.then(worst).otherwise("value"),
    )
    window = ["kind", "policy", "statistic", "source", "first", "last"]
    ages = judged.select("run_id", "policy", "kind", "age")
    return (
        scored.join(ages, on=["run_id", "policy", "kind"])
        .with_columns(whole=pl.col("fold").is_null())
        .sort(*window, "whole", pl.col("value").is_not_null(), "age")
        .unique([*window, "whole"], keep="last", maintain_order=True)
    )


def _table(judged: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """Rows of PRUDEX: every statistic of every policy, and a row per axis."""
    statistics = pl.DataFrame(
        [
            (measure.axis, measure.name, statistic.name, statistic.scored)
            for measure in MEASURES
            for statistic in measure.statistics
        ],
        schema=["axis", "measure", "statistic", "scored"],
        orient="row",
    )
    policies = (
        judged.sort("age")
        .group_by("policy", "kind", maintain_order=True)
        .agg(pl.col("experiment").last(), pl.col("source").unique().sort().alias("markets"))
    )
    described = pl.col("statistic").replace_strict(_WITHOUT_SCORE, default=None, return_dtype=pl.String)
    rows = (
        policies.join(statistics, how="cross", maintain_order="left_right")
        .join(answers.select(*ANSWERS), on=["policy", "kind", "statistic"], how="left", maintain_order="left")
        .with_columns(
            note=pl.when(pl.col("value").is_null()).then(pl.col("note").fill_null(_NOT_RECORDED)).otherwise("note")
        )
        .with_columns(note=pl.col("note").fill_null(pl.when(~pl.col("scored")).then(described)))
        .with_columns(reported=_is_reported().any().over("policy", "kind", "measure"))
        .select(*PRUDEX)
    )
    axis = pl.col("axis").replace_strict({axis: i for i, axis in enumerate(AXES)}, return_dtype=pl.Int32)
    return pl.concat([rows, _axis_rows(rows)]).sort("kind", "policy", axis, maintain_order=True)


def _is_reported() -> pl.Expr:
    compared = (pl.col("axis") != "universality") | (pl.col("value") >= _COMPARED)
    return pl.col("value").is_not_null() & compared


def _axis_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Row per axis: number of reported measures, and mean of the measures' mean scores."""
    who = ["policy", "kind", "experiment", "markets", "axis"]
    measures = rows.group_by(*who, "measure", maintain_order=True).agg(
        pl.col("score").mean(), pl.col("reported").first()
    )
    n_scored, n_all = pl.col("score").count(), pl.col("known").sum()
    measures = measures.with_columns(known=pl.col("score").is_not_null().any().over("measure"))
    fewer = pl.format("mean of {} of the {} measures that other policies have scores in", n_scored, n_all)
    unscored = pl.format("no measure of {} has a score", pl.col("axis"))
    return (
        measures.group_by(who, maintain_order=True)
        .agg(
            pl.col("reported").sum().cast(pl.Float64).alias("value"),
            pl.col("score").mean(),
            pl.when(n_scored < n_all).then(fewer).alias("note"),
        )
        .with_columns(
            measure=pl.lit(OF_AXIS),
            statistic=pl.lit("measures_reported"),
            reported=pl.col("value") > 0.0,
            note=pl.when(pl.col("score").is_null()).then(unscored).otherwise("note"),
        )
        .select(*PRUDEX)
    )
