"""p values of several tests, adjusted so that the best of them is not taken for a find."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests

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
    "holm": "holm",
    "benjamini_hochberg": "fdr_bh",
    "benjamini_yekutieli": "fdr_by",
    "bonferroni": "bonferroni",
    "sidak": "sidak",
    "holm_sidak": "holm-sidak",
    "hochberg": "simes-hochberg",
    "hommel": "hommel",
}


def adjusted_p_values(p_values: NDArray[np.float64], correction: Correction) -> NDArray[np.float64]:
    """The p values (n,) in their order, each adjusted for the others; a test is rejected where its own is <= alpha.

    Benjamini and Hochberg's, and Yekutieli's, bound the false discovery rate, the others the family-wise error rate.

    Raises:
        ValueError: if there are none, some are not between 0 and 1, or the correction is unknown.

    Source: statsmodels' `multipletests`.
    """
    if correction not in _STATSMODELS:
        raise ValueError(f"a correction must be one of {', '.join(get_args(Correction))}, but is {correction!r}")
    if p_values.ndim != 1 or not len(p_values) or not ((p_values >= 0.0) & (p_values <= 1.0)).all():
        raise ValueError(f"p values must lie between 0 and 1 on one axis, at least one, but are {p_values}")
    return np.asarray(multipletests(p_values, method=_STATSMODELS[correction])[1], dtype=np.float64)
