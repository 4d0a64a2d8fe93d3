"""Lead of one account over another in the same sessions, with a paired error."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, sharpe_ratio, varies

BLOCK_SIZE = 21  # sessions whose influences are added up, a month
NO_ERROR = 1e-9  # annual standard error of accounts that differ by rounding or leverage only


@dataclass(frozen=True)
class Lead:
    """Difference of annual Sharpe ratios to a base, with its standard error."""

    difference: float
    standard_error: float  # paired, from blocks of sessions
    n_blocks: int

    @property
    def t(self) -> float:
        """Difference in standard errors; 0 where no session tells the two accounts apart."""
        return self.difference / self.standard_error if self.standard_error > NO_ERROR else 0.0

    @property
    def p_value(self) -> float:
        """Probability of a t at least as large without a true lead, by Student's distribution."""
        return float(scipy.special.stdtr(self.n_blocks - 1, -self.t))

    def interval(self, level: float) -> tuple[float, float]:
        """Interval that misses the true lead with probability `level` on each side."""
        reach = t_quantile(level, self.n_blocks) * self.standard_error
        return self.difference - reach, self.difference + reach


@takes_arrays
def lead_of(trial: NDArray[np.float64], base: NDArray[np.float64], periods_per_year: int) -> Lead:
    """Lead of a trial over a base: mean over seeds of the Sharpe ratio on both sides.

    The error is that of the mean over seeds of the returns. For the account that would trade, pass that mean as one
    seed. The oldest sessions that fill no block count in the difference only.

    Args:
        trial: net returns (n_seeds, n) per session.
        base: the same of the base (n_base_seeds, n), in the same sessions.
        periods_per_year: sessions a year.

    Raises:
        ValueError: if the sessions differ in number or fill fewer than two blocks, or returns are not finite.
        UndefinedStatisticError: if the returns of a side are constant.
    """
    if trial.shape[1:] != base.shape[1:]:
        raise ValueError(f"a lead needs two sides of the same sessions, got shapes {trial.shape} and {base.shape}")
    ratios = [np.mean([sharpe_ratio(seed, periods_per_year) for seed in side]) for side in (trial, base)]
    influences = [sharpe_influence(side.mean(axis=0), periods_per_year) for side in (trial, base)]
    sums = block_sums(influences[0] - influences[1])
    n_blocks = len(sums)
    if n_blocks < 2:
        raise ValueError(f"a lead needs {2 * BLOCK_SIZE} sessions or more, got {base.shape[1]}")
    return Lead(float(ratios[0] - ratios[1]), float(sums.std(ddof=1)) / (sqrt(n_blocks) * BLOCK_SIZE), n_blocks)


@takes_arrays
def sharpe_influence(returns: NDArray[np.float64], periods_per_year: int) -> NDArray[np.float64]:
    """Influence (n,) of each session on the annual Sharpe ratio (ddof 1) of returns (n,), by the delta method.

    Raises:
        UndefinedStatisticError: if the returns are constant.
    """
    if not varies(returns):
        raise UndefinedStatisticError(f"a lead needs returns that vary, but all {len(returns)} are {returns[0]:.6g}")
    mean, deviation = float(returns.mean()), float(returns.std(ddof=1))
    standard = (returns - mean) / deviation
    return sqrt(periods_per_year) * (standard - 0.5 * mean / deviation * (standard**2 - 1.0))


@takes_arrays
def block_sums(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums (n_blocks,) over consecutive blocks of sessions; the oldest that fill no block are left out."""
    return series[len(series) % BLOCK_SIZE :].reshape(-1, BLOCK_SIZE).sum(axis=1)


def t_quantile(level: float, n_blocks: int) -> float:
    """Value that a t of so many blocks exceeds with probability `level` without a true lead."""
    return -float(scipy.special.stdtrit(n_blocks - 1, level))
