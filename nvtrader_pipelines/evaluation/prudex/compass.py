"""PRUDEX-Compass of every policy: numbers, scores, notes, and the rows its pictures are drawn from."""

from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.evaluation.prudex.answers import (
    ANSWERS,
    of_profiles,
    of_ranks,
    of_single_seeds,
    of_universality,
    of_windows,
)
from nvtrader_pipelines.evaluation.prudex.holdings import holding_windows, holdings
from nvtrader_pipelines.evaluation.prudex.measures import AXES, MEASURES, OF_AXIS, PRUDEX, RANKED, RING
from nvtrader_pipelines.evaluation.prudex.pictures import heat_of, plane_of
from nvtrader_pipelines.evaluation.prudex.record import BASELINE, REFERENCE, SEED, PrudexRecord, accounts
from nvtrader_pipelines.evaluation.prudex.runs import members, runs_of, seed_windows
from nvtrader_pipelines.evaluation.prudex.scores import with_scores
from nvtrader_pipelines.evaluation.prudex.surrogates import of_surrogates
from nvtrader_pipelines.evaluation.prudex.windows import return_windows

_COMPARED = 2.0  # markets, asset types, time scales or windows that make universality more than a word
_DESCRIBES = {
    "final_equity": "no score: the end of a curve that rl.equity_curves holds; profit is scored as total_return",
    "trustworthiness": "no score: says how well the picture keeps neighbours, nothing of the policy",
    "largest_weight": "no score: the picture's darkest cell; entropy and correlation are scored",
    "surrogate_r2": "no score: the source scores no explainability; says how simple the policy is, not how good",
}
_NOTHING = "not on record: the run has no rows that it could be computed from"


@dataclass(frozen=True, eq=False)
class Compass:
    """The answers, and what is drawn beside them."""

    table: pl.DataFrame  # PRUDEX
    profiles: pl.DataFrame  # answers.PROFILES
    ranks: pl.DataFrame  # answers.RANKS
    plane: pl.DataFrame  # pictures.PLANE
    heat: pl.DataFrame  # pictures.HEAT
    note: str  # what a reader of any of it must know


def prudex_compass(record: PrudexRecord, seed: int = 0) -> Compass:
    """Every measure of every policy of the record, its seeds and the baselines; 50 is 1/N of the same run.

    Raises:
        ValueError: if the accounts of a run do not cover the same sessions, or a number in the record is not finite.
    """
    judged = accounts(record)
    who = members(record.curves.select("run_id", "policy", "kind").unique(), judged)
    everyone, ours = list(holdings(record)), set(judged.select("run_id", "policy", "kind").iter_rows())
    held = [each for each in everyone if (each.run_id, each.policy, each.kind) in ours]
    scored = _scored(pl.concat([return_windows(record), holding_windows(record, everyone)]), who, judged)
    ranked = {name: runs_of(scored, who, name, "value") for name in RANKED}
    of_profile, profiles = of_profiles(runs_of(scored, who, "total_return", "score"), seed)
    of_rank, ranks = of_ranks(ranked, seed)
    of_plane, plane = plane_of(held, seed)
    answers = pl.concat(
        [
            of_windows(scored),
            of_universality(scored, record.runs["source"].n_unique()),
            of_profile,
            of_rank,
            of_single_seeds(judged),
            of_plane,
            of_surrogates(held, record.features),
        ]
    )
    notes = dict.fromkeys(warning for warnings in record.runs["warnings"] for warning in warnings)
    return Compass(_table(judged, answers), profiles, ranks, plane, heat_of(held), "; ".join(notes))


def axis_scores(table: pl.DataFrame) -> pl.DataFrame:
    """A row per experiment and baseline: its score on every axis to one decimal, and measures of the ring computed.

    Args:
        table: rows of PRUDEX.
    """
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
    """Rows of WINDOWS of the judged accounts with market and score."""
    rows = pl.concat([windows, seed_windows(windows, who)])
    spread = pl.when(pl.col("statistic") == "seed_deviation").then(0.0)  # 1/N has no seeds to differ by
    reference = rows.filter(pl.col("policy") == REFERENCE, pl.col("kind") == BASELINE)
    market = reference.select("run_id", "fold", "statistic", market=spread.otherwise(pl.col("value")))
    beside = rows.join(market, on=["run_id", "fold", "statistic"], how="left", nulls_equal=True, maintain_order="left")
    ours = beside.join(judged, on=["run_id", "policy", "kind"], how="semi", maintain_order="left")
    return with_scores(ours, task=("source", "first", "last"))


def _table(judged: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """Rows of PRUDEX: every statistic of every policy, then the sums of its axes."""
    asked = pl.DataFrame(
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
    described = pl.col("statistic").replace_strict(_DESCRIBES, default=None, return_dtype=pl.String)
    rows = (
        policies.join(asked, how="cross", maintain_order="left_right")
        .join(answers.select(*ANSWERS), on=["policy", "kind", "statistic"], how="left", maintain_order="left")
        .with_columns(
            note=pl.when(pl.col("value").is_null()).then(pl.col("note").fill_null(_NOTHING)).otherwise("note")
        )
        .with_columns(note=pl.col("note").fill_null(pl.when(~pl.col("scored")).then(described)))
        .with_columns(reported=_is_reported().any().over("policy", "kind", "measure"))
        .select(*PRUDEX)
    )
    return pl.concat([rows, _of_axes(rows)]).sort("kind", "policy", _axis_order(), maintain_order=True)


def _is_reported() -> pl.Expr:
    compared = (pl.col("axis") != "universality") | (pl.col("value") >= _COMPARED)
    return pl.col("value").is_not_null() & compared


def _axis_order() -> pl.Expr:
    return pl.col("axis").replace_strict({axis: i for i, axis in enumerate(AXES)}, return_dtype=pl.Int32)


def _of_axes(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per axis: measures reported, and the mean of the measures' scores, each the mean of its statistics'."""
    who = ["policy", "kind", "experiment", "markets", "axis"]
    measures = rows.group_by(*who, "measure", maintain_order=True).agg(
        pl.col("score").mean(), pl.col("reported").first()
    )
    unscored = pl.format("no measure of {} has a score", pl.col("axis"))
    return (
        measures.group_by(who, maintain_order=True)
        .agg(pl.col("reported").sum().cast(pl.Float64).alias("value"), pl.col("score").mean())
        .with_columns(
            measure=pl.lit(OF_AXIS),
            statistic=pl.lit("measures_reported"),
            reported=pl.col("value") > 0.0,
            note=pl.when(pl.col("score").is_null()).then(unscored),
        )
        .select(*PRUDEX)
    )
