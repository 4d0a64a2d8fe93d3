"""Explainability: how well a small tree on market features predicts an account's weights."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

MAX_DEPTH = 4  # sixteen leaves: as many rules as a person can read
_NEVER_VARIES = 1e-9  # of a weight


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
