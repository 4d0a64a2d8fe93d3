"""Answers of explainability: the shallow tree of every policy."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.prudex.explainability import surrogate_r2
from nvtrader_pipelines.evaluation.prudex.holdings import Holdings
from nvtrader_pipelines.evaluation.prudex.measures_table import table_of
from nvtrader_pipelines.evaluation.prudex.windows import measured

_KEYS = ("source", "symbol", "session")


def of_surrogates(held: Sequence[Holdings], features: pl.DataFrame) -> pl.DataFrame:
    """How far a small tree on the features says what each account holds, the mean over markets.

    Args:
        held: of all accounts.
        features: source, symbol, session and features.
    """
    markets = features.partition_by("source", as_dict=True)
    nothing = features.clear()
    walks: dict[tuple[str, str, str], list[Holdings]] = {}
    for each in held:
        walks.setdefault((each.policy, each.kind, each.source), []).append(each)
    rows = [
        (policy, kind, *_of_walk(walk, markets.get((source,), nothing)))
        for (policy, kind, source), walk in walks.items()
    ]
    each_market = table_of(rows, {"policy": pl.String, "kind": pl.String, "value": pl.Float64, "note": pl.String})
    return each_market.group_by("policy", "kind", maintain_order=True).agg(
        pl.lit("surrogate_r2").alias("statistic"),
        pl.col("value").mean(),
        pl.lit(None, dtype=pl.Float64).alias("score"),
        pl.when(pl.col("value").is_null().all()).then(pl.col("note").first()).alias("note"),
    )


def _of_walk(walk: Sequence[Holdings], features: pl.DataFrame) -> tuple[float | None, str | None]:
    decided = [
        pl.DataFrame(
            {
                "session": np.repeat(each.sessions, len(each.symbols)),
                "symbol": list(each.symbols) * len(each.sessions),
                "weight": each.weights.ravel(),
            }
        )
        for each in walk
    ]
    rows = pl.concat(decided).join(features, on=["session", "symbol"]).sort("session", "symbol")
    known = rows.drop(*_KEYS, "weight").cast(pl.Float64).to_numpy()
    return measured(partial(surrogate_r2, known, rows["weight"].to_numpy()))
