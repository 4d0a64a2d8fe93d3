"""PRUDEX-Compass of every policy: numbers, scores, notes, and the rows its pictures are drawn from."""

from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.evaluation.prudex.holdings import holding_windows, holdings
from nvtrader_pipelines.evaluation.prudex.measures import AXES, MEASURES, OF_AXIS, RANKED, RING, STATISTICS
from nvtrader_pipelines.evaluation.prudex.measures_table import (
    ANSWERS,
    of_profiles,
    of_ranks,
    of_single_seeds,
    of_universality,
    of_windows,
)
from nvtrader_pipelines.evaluation.prudex.pictures import heat_of, plane_of
from nvtrader_pipelines.evaluation.prudex.record import BASELINE, REFERENCE, SEED, PrudexRecord, accounts
from nvtrader_pipelines.evaluation.prudex.runs import members, runs_of, seed_windows
from nvtrader_pipelines.evaluation.prudex.scores import with_scores
from nvtrader_pipelines.evaluation.prudex.surrogates import of_surrogates
from nvtrader_pipelines.evaluation.prudex.windows import return_windows
from nvtrader_pipelines.evaluation.verdict_tables import PRUDEX

_COMPARED = 2.0  # markets, asset types, time scales or windows that make universality more than a word
_DESCRIBES = {
    "final_equity": "no score: the end of a curve that rl.equity_curves holds; profit is scored as total_return",
    "trustworthiness": "no score: says how well the picture keeps neighbours, nothing of the policy",
    "largest_weight": "no score: the picture's darkest cell; entropy and correlation are scored",
    "seed_deviation": "no score: 1/N has no seeds to differ by, and an account of one seed would score best",
    "surrogate_r2": "no score: the source scores no explainability; says how simple the policy is, not how good",
}
_WORST = 1e9  # beyond what any account has: those who lost all rank last
_LOW = [statistic.name for statistic in STATISTICS.values() if not statistic.higher_is_better]
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
    who = members(judged)
    everyone = list(holdings(record))
    scored = _scored(pl.concat([return_windows(record), holding_windows(record, everyone)]), who, judged)
    ours = set(scored.filter(pl.col("statistic") == "entropy").select("run_id", "policy", "kind", "fold").iter_rows())
    held = [each for each in everyone if (each.run_id, each.policy, each.kind, each.fold) in ours]
    ranked = {name: runs_of(scored, who, name, "ranked") for name in RANKED}
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
    note = "; ".join(filter(None, (record.left_out, *notes)))
    return Compass(_table(judged, answers), profiles, ranks, plane, heat_of(held), note)


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
    """Rows of WINDOWS with market, score, and what to rank by; a baseline stands once in a window, of the newest run.

    Scores are scaled by every account of every run, so that who finished last changes none.
    """
    rows = pl.concat([windows, seed_windows(windows, who)])
    reference = rows.filter(pl.col("policy") == REFERENCE, pl.col("kind") == BASELINE, ~pl.col("ruined"))
    market = reference.select("run_id", "fold", "statistic", market="value")
    beside = rows.join(market, on=["run_id", "fold", "statistic"], how="left", nulls_equal=True)
    lost = pl.when(pl.col("ruined"))
    alive = beside.with_columns(value=lost.then(None).otherwise("value"), measured="value")
    worst = pl.when(pl.col("statistic").is_in(_LOW)).then(_WORST).otherwise(-_WORST)
    scored = with_scores(alive, task=("source", "first", "last")).with_columns(
        value="measured",
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
    n_scored, n_all = pl.col("score").count(), pl.col("known").sum()
    measures = measures.with_columns(known=pl.col("score").is_not_null().any().over("measure"))
    fewer = pl.format("the mean of {} of the {} measures that others have scores in", n_scored, n_all)
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
