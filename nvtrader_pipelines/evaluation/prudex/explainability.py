"""Explainability: how far a small tree on the market's features says what an account holds."""

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.tree import DecisionTreeRegressor

from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

MAX_DEPTH = 4  # sixteen leaves: as many rules as a person reads
_NEVER_VARIES = 1e-9  # of a weight


def surrogate_r2(features: NDArray[np.float64], weights: NDArray[np.float64], max_depth: int = MAX_DEPTH) -> float:
    """Share of the weights' variance that a shallow tree explains out of sample; 1 at most, below 0 it misleads.

    The tree learns each name's weight from that name's features on the earlier half of the rows and is judged on the
    later half. It says how simple the policy is, not how good, and not why it acts.

    Args:
        features: (n, n_features), a row per decision and name in the order of time; NaN where one is missing.
        weights: (n,) of the name at the decision.
        max_depth: of the tree.

    Raises:
        ValueError: if the lengths differ or a weight is not finite.
        UndefinedStatisticError: if the weights of either half never vary, or there are fewer than four.

    Source: Bastani et al. (2017), extraction of trees from a model, here by one regression.
    """
    if features.ndim != 2 or features.shape[0] != len(weights) or not np.isfinite(weights).all():
        raise ValueError(
            f"a surrogate needs the features of each finite weight, but the shapes are {features.shape} and "
            f"{weights.shape} with {int((~np.isfinite(weights)).sum())} weights not finite"
        )
    half = len(weights) // 2
    if half < 2 or min(np.ptp(weights[:half]), np.ptp(weights[half:])) <= _NEVER_VARIES:
        raise UndefinedStatisticError("the weights never vary, so that there is nothing to explain")
    tree = DecisionTreeRegressor(max_depth=max_depth, random_state=0).fit(features[:half], weights[:half])
    return float(r2_score(weights[half:], tree.predict(features[half:])))
