"""p values adjusted for multiple testing."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays

Correction = Literal["holm", "benjamini_hochberg"]


@takes_arrays
def adjusted_p_values(p_values: NDArray[np.float64], correction: Correction) -> NDArray[np.float64]:
    """Adjust p values (n,) for one another; a test rejects where its adjusted value is at most alpha.

    Benjamini-Hochberg bounds the false discovery rate, Holm the family-wise error rate.

    Raises:
        ValueError: if there are none, or some are not between 0 and 1.
    """
    if p_values.ndim != 1 or not len(p_values) or not ((p_values >= 0.0) & (p_values <= 1.0)).all():
        raise ValueError(f"p values: expected one or more between 0 and 1 on one axis, got {p_values}")
    if correction == "holm":
        return _holm(p_values)
    from statsmodels.stats.multitest import fdrcorrection  # it takes a second to import

    return np.asarray(fdrcorrection(p_values)[1], dtype=np.float64)


def _holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm (1979); statsmodels' version runs the garbage collector, which takes a second with many objects."""
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
