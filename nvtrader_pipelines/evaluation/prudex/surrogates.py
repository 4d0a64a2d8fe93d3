"""Explainability of every policy by surrogate trees."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.prudex.explainability import surrogate_r2
from nvtrader_pipelines.evaluation.prudex.holdings import WindowHoldings
from nvtrader_pipelines.evaluation.prudex.measures_table import table_of
from nvtrader_pipelines.evaluation.statistics import value_or_reason

_KEYS = ("source", "symbol", "session")
Answer = tuple[float | None, str | None]  # value, or the reason why there is none
Surrogate = Callable[[Sequence[WindowHoldings], pl.DataFrame], Answer]  # as `surrogate_of_walk`


def surrogate_measures(held: Sequence[WindowHoldings], features: pl.DataFrame, surrogate: Surrogate) -> pl.DataFrame:
    """Surrogate R² of each account on the features, averaged over markets (ANSWERS)."""
    markets = features.partition_by("source", as_dict=True)
    no_features = features.clear()
    walks: dict[tuple[str, str, str], list[WindowHoldings]] = {}
    for each in held:
        walks.setdefault((each.policy, each.kind, each.source), []).append(each)
    rows = [
        (policy, kind, *surrogate(walk, markets.get((source,), no_features)))
        for (policy, kind, source), walk in walks.items()
    ]
    each_market = table_of(rows, {"policy": pl.String, "kind": pl.String, "value": pl.Float64, "note": pl.String})
    return each_market.group_by("policy", "kind", maintain_order=True).agg(
        pl.lit("surrogate_r2").alias("statistic"),
        pl.col("value").mean(),
        pl.lit(None, dtype=pl.Float64).alias("score"),
        pl.when(pl.col("value").is_null().all()).then(pl.col("note").first()).alias("note"),
    )


def surrogate_of_walk(walk: Sequence[WindowHoldings], features: pl.DataFrame) -> Answer:
    """Surrogate R² of one account in its test windows on one market, from the market's features."""
    weights = [
        pl.DataFrame(
            {
                "session": np.repeat(each.sessions, len(each.symbols)),
                "symbol": list(each.symbols) * len(each.sessions),
                "weight": each.weights.ravel(),
            }
        )
        for each in walk
    ]
    rows = pl.concat(weights).join(features, on=["session", "symbol"]).sort("session", "symbol")
    known = rows.drop(*_KEYS, "weight").cast(pl.Float64).to_numpy()
    return value_or_reason(partial(surrogate_r2, known, rows["weight"].to_numpy()))
