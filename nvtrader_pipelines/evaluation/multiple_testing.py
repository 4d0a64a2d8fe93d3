"""p values adjusted for multiple testing."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Correction = Literal[
    "holm",
    "benjamini_hochberg",
    "benjamini_yekutieli",
    "bonferroni",
    "sidak",
    "holm_sidak",
    "hochberg",
    "hommel",
]
_STATSMODELS: dict[str, str] = {
    "benjamini_hochberg": "fdr_bh",
    "benjamini_yekutieli": "fdr_by",
    "bonferroni": "bonferroni",
    "sidak": "sidak",
    "holm_sidak": "holm-sidak",
    "hochberg": "simes-hochberg",
    "hommel": "hommel",
}


def adjusted_p_values(p_values: NDArray[np.float64], correction: Correction) -> NDArray[np.float64]:
    """Adjust p values (n,) for one another; a test rejects where its adjusted value is at most alpha.

    The Benjamini corrections bound the false discovery rate, the others the family-wise error rate.

    Raises:
        ValueError: if there are none, some are not between 0 and 1, or the correction is unknown.

    Source: statsmodels' `multipletests`, except Holm.
    """
    if correction not in get_args(Correction):
        raise ValueError(f"correction: expected one of {', '.join(get_args(Correction))}, got {correction!r}")
    if p_values.ndim != 1 or not len(p_values) or not ((p_values >= 0.0) & (p_values <= 1.0)).all():
        raise ValueError(f"p values: expected one or more between 0 and 1 on one axis, got {p_values}")
    if correction == "holm":
        return _holm(p_values)
    with np.errstate(divide="ignore"):  # Sidak takes the logarithm of 1 - p
        from statsmodels.stats.multitest import multipletests

        return np.asarray(multipletests(p_values, method=_STATSMODELS[correction])[1], dtype=np.float64)


def _holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm (1979); statsmodels' version runs the garbage collector, which takes a second with many objects."""
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
