"""Explainability: how well a small tree on market features predicts an account's weights."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.prudex.holdings import WindowHoldings
from nvtrader_pipelines.evaluation.prudex.measures_table import table_of
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, value_or_reason

_KEYS = ("source", "symbol", "session")
Answer = tuple[float | None, str | None]  # value, or the reason why there is none
Surrogate = Callable[[Sequence[WindowHoldings], pl.DataFrame], Answer]  # as `surrogate_of_walk`
MAX_DEPTH = 4  # sixteen leaves: as many rules as a person can read
_NEVER_VARIES = 1e-9  # of a weight


def surrogate_measures(held: Sequence[WindowHoldings], features: pl.DataFrame, surrogate: Surrogate) -> pl.DataFrame:
    """Surrogate R² of each account on the features, averaged over markets (ANSWERS)."""
    markets = features.partition_by("source", as_dict=True)
    no_features = features.clear()
    walks: dict[tuple[str, str, str], list[WindowHoldings]] = {}
    for walked in held:
        walks.setdefault((walked.policy, walked.kind, walked.source), []).append(walked)
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
                "session": np.repeat(walked.sessions, len(walked.symbols)),
                "symbol": list(walked.symbols) * len(walked.sessions),
                "weight": walked.weights.ravel(),
            }
        )
        for walked in walk
    ]
    rows = pl.concat(weights).join(features, on=["session", "symbol"]).sort("session", "symbol")
    known = rows.drop(*_KEYS, "weight").cast(pl.Float64).to_numpy()
    return value_or_reason(partial(surrogate_r2, known, rows["weight"].to_numpy()))


@takes_arrays
def surrogate_r2(features: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Out-of-sample R² of a shallow tree that predicts weights from features.

    The tree is fitted on the earlier half of the rows and scored on the later half. It measures how simple the policy
    is, not how good.

    Args:
        features: (n, n_features), a row per decision and name in time order; NaN where missing.
        weights: (n,) of the names.

    Raises:
        ValueError: if the lengths differ or a weight is not finite.
        UndefinedStatisticError: if the weights of either half are constant, or there are fewer than four.

    Source: Bastani et al. (2017), extraction of trees from models; here a single regression tree.
    """
    from sklearn.metrics import r2_score  # half a second to import
    from sklearn.tree import DecisionTreeRegressor

    if features.ndim != 2 or features.shape[0] != len(weights) or not np.isfinite(weights).all():
        n_bad = int((~np.isfinite(weights)).sum())
        raise ValueError(f"surrogate: features {features.shape}, weights {weights.shape}, {n_bad} not finite")
    half = len(weights) // 2
    if half < 2 or min(np.ptp(weights[:half]), np.ptp(weights[half:])) <= _NEVER_VARIES:
        raise UndefinedStatisticError("the weights are constant, so there is nothing to explain")
    tree = DecisionTreeRegressor(max_depth=MAX_DEPTH, random_state=0).fit(features[:half], weights[:half])
    return float(r2_score(weights[half:], tree.predict(features[half:])))
