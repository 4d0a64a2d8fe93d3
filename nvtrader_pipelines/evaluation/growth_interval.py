"""Interval of an account's growth over fewer sessions than its back-test has."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.intervals import BOOTSTRAP_SEED, percentile_interval
from nvtrader_pipelines.evaluation.statistics import CONFIDENCE_LEVEL, N_DRAWS

BLOCK = 21  # sessions, as of Sharpe intervals


@takes_arrays
def growth_interval(
    net_returns: NDArray[np.float64], n_sessions: int, confidence_level: float = CONFIDENCE_LEVEL
) -> tuple[float, float]:
    """Bounds of the log growth over `n_sessions` sessions, from simple returns (T,) of a back-test.

    Every draw joins blocks of 21 consecutive returns, after the last of which the first follows, so that the
    autocorrelation within a month stays. Equal returns have equal bounds.

    Source: circular block bootstrap of Politis & Romano (1992); percentile interval.
    """
    growth = np.log1p(net_returns)
    shape = N_DRAWS, -(-n_sessions // BLOCK), 1
    starts = np.random.default_rng(BOOTSTRAP_SEED).integers(len(growth), size=shape)
    drawn = (starts + np.arange(BLOCK)).reshape(N_DRAWS, -1)[:, :n_sessions] % len(growth)
    return percentile_interval(growth[drawn].sum(axis=1), confidence_level)
