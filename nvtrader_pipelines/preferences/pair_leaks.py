"""Checks of preference pairs: leaks into the hold-out or a test, balance, duplicates and age."""

from collections.abc import Mapping, Sequence
from datetime import date

import polars as pl

from nvtrader_pipelines.preferences.pairs import TRAIN, holdout_part

BALANCED = (0.1, 0.9)  # share of a candidate's pairs that the policy wins; our choice
Span = tuple[date, date]  # first and last session


def leaking_pairs(pairs: pl.DataFrame, tests: Mapping[int, Sequence[Span]]) -> pl.DataFrame:
    """Pairs that see what they must not, with the reason.

    A pair is trained on only if no day of it is held out, and one of a fold's policy touches no test of the fold.

    Args:
        pairs: columns of `PREFERENCE_PAIR`.
        tests: spans of tested sessions, by fold.
    """
    days = [pairs[name].to_numpy().astype("datetime64[D]") for name in ("session", "outcome_session")]
    first, last = (pl.Series(holdout_part(several).tolist(), dtype=pl.String) for several in days)
    touches_holdout = (pairs["part"] == TRAIN) & ((first != TRAIN) | (last != TRAIN))
    differs = (pairs["part"] != TRAIN) & ((first != pairs["part"]) | (last != pairs["part"]))
    spans = [(fold, *span) for fold, several in tests.items() for span in several]
    tested = pl.DataFrame(spans, schema={"fold": pl.Int32, "first": pl.Date, "last": pl.Date}, orient="row")
    touching = pairs.join(tested, on="fold").filter(
        pl.col("session") <= pl.col("last"), pl.col("outcome_session") >= pl.col("first")
    )
    reasons = {
        "reaches into the hold-out": pairs.filter(touches_holdout),
        "is held out, but reaches out of the hold-out": pairs.filter(differs),
        "reaches into a test of its fold": touching.select(pairs.columns),
    }
    frames = [rows.with_columns(reason=pl.lit(reason)) for reason, rows in reasons.items()]
    return pl.concat(frames).select("pair_id", "fold", "session", "outcome_session", "part", "reason")


def duplicate_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """Pairs that are in the table more than once."""
    return pairs.group_by("pair_id").len().filter(pl.col("len") > 1).sort("pair_id")


def unbalanced_candidates(pairs: pl.DataFrame, policy: str) -> pl.DataFrame:
    """Candidates against which a policy nearly always wins or loses, so that their pairs teach nothing."""
    against = pl.when(pl.col("chosen") == policy).then(pl.col("rejected")).otherwise(pl.col("chosen"))
    shares = (
        pairs.filter(source="counterfactual")
        .group_by(candidate=against)
        .agg(pairs=pl.len(), won=(pl.col("chosen") == policy).mean())
        .sort("candidate")
    )
    return shares.filter(~pl.col("won").is_between(*BALANCED))


def age_of_labels(pairs: pl.DataFrame, today: date) -> int | None:
    """Days since the newest decision of a person that is a pair; None without one."""
    newest = pairs.filter(source="person")["session"].max()
    return (today - newest).days if isinstance(newest, date) else None
