"""Explainability of every policy by surrogate trees."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.prudex.holdings import WindowHoldings
from nvtrader_pipelines.evaluation.prudex.measures_table import table_of
from nvtrader_pipelines.evaluation.statistics import value_or_reason

_KEYS = ("source", "symbol", "session")
FloatArray = NDArray[np.float64]
Surrogate = Callable[[FloatArray, FloatArray], float]  # R² from features and weights, as `surrogate_r2`


def surrogate_measures(held: Sequence[WindowHoldings], features: pl.DataFrame, surrogate: Surrogate) -> pl.DataFrame:
    """Surrogate R² of each account on the features, averaged over markets (ANSWERS)."""
    markets = features.partition_by("source", as_dict=True)
    no_features = features.clear()
    walks: dict[tuple[str, str, str], list[WindowHoldings]] = {}
    for each in held:
        walks.setdefault((each.policy, each.kind, each.source), []).append(each)
    rows = [
        (policy, kind, *_account_r2(walk, markets.get((source,), no_features), surrogate))
        for (policy, kind, source), walk in walks.items()
    ]
    each_market = table_of(rows, {"policy": pl.String, "kind": pl.String, "value": pl.Float64, "note": pl.String})
    return each_market.group_by("policy", "kind", maintain_order=True).agg(
        pl.lit("surrogate_r2").alias("statistic"),
        pl.col("value").mean(),
        pl.lit(None, dtype=pl.Float64).alias("score"),
        pl.when(pl.col("value").is_null().all()).then(pl.col("note").first()).alias("note"),
    )


def _account_r2(
    walk: Sequence[WindowHoldings], features: pl.DataFrame, surrogate: Surrogate
) -> tuple[float | None, str | None]:
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
    return value_or_reason(partial(surrogate, known, rows["weight"].to_numpy()))
