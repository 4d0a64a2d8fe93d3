"""Probability of backtest overfitting, by combinatorially symmetric cross-validation (CSCV)."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, sharpe_of_sums

FloatArray = NDArray[np.float64]

MAX_BLOCKS = 20  # 184,756 combinations
_TIE = 1e-12  # Sharpe ratios of equal trials differ by rounding only


@dataclass(frozen=True, eq=False)
class BacktestOverfitting:
    """Best trial on each half of the blocks, and its Sharpe ratio on the other half.

    Sharpe ratios are per observation; the C combinations are in lexicographic order of the in-sample blocks.
    """

    n_blocks: int
    chosen: NDArray[np.int64]  # (C,) best trial in sample
    in_sample: FloatArray  # (C,) Sharpe ratio of that trial in sample
    out_of_sample: FloatArray  # (C,) Sharpe ratio of that trial out of sample
    logits: FloatArray  # (C,) ln(w / (1 - w)) of its relative rank w out of sample; below 0: worse half

    @property
    def probability(self) -> float:
        """Probability of backtest overfitting: share of logits of at most 0, the median rank included."""
        return float((self.logits <= 0.0).mean())

    @property
    def probability_of_loss(self) -> float:
        """Share of combinations whose best trial has a negative Sharpe ratio out of sample."""
        return float((self.out_of_sample < 0.0).mean())

    def degradation(self) -> "Degradation":
        """Regress the out-of-sample Sharpe ratio on the in-sample one.

        Raises:
            ValueError: if all in-sample Sharpe ratios are equal.
        """
        if np.ptp(self.in_sample) <= _TIE:
            raise ValueError(
                f"degradation needs Sharpe ratios that differ, but in sample all are {self.in_sample[0]:g}"
            )
        import statsmodels.api as sm  # it takes a second to import

        fitted = sm.OLS(self.out_of_sample, sm.add_constant(self.in_sample)).fit()
        intercept, slope = map(float, fitted.params)
        return Degradation(slope, intercept, float(fitted.rsquared))


@dataclass(frozen=True)
class Degradation:
    """Least squares of out-of-sample on in-sample Sharpe ratios, over the combinations."""

    slope: float
    intercept: float
    r_squared: float


@takes_arrays
def backtest_overfitting(returns: FloatArray, n_blocks: int = 16) -> BacktestOverfitting:
    """Choose the best trial on every half of the blocks and rank it on the other half.

    Blocks are contiguous and equal; the oldest T mod S sessions are left out. Rank 1 out of sample is the worst, ties
    share their mean rank, and w = rank / (N + 1).

    Args:
        returns: (T, N), per session and trial.
        n_blocks: S, even; 16 make 12,870 combinations.

    Raises:
        ValueError: if there are fewer than two trials, all are equal or have equal Sharpe ratios in every half, a
            block would have fewer than two sessions, the number of blocks is odd or above 20, or some returns are not
            finite.

    Source: Bailey, Borwein, Lopez de Prado & Zhu (2017), "The Probability of Backtest Overfitting".
    """
    _require_trials(returns, n_blocks)
    size = len(returns) // n_blocks
    used = returns[len(returns) - size * n_blocks :]
    halves = np.array(list(combinations(range(n_blocks), n_blocks // 2)))
    inside = np.zeros((len(halves), n_blocks))
    np.put_along_axis(inside, halves, 1.0, axis=1)
    sharpe = _sharpe_of_halves(used.reshape(n_blocks, size, -1), inside)
    if (np.ptp(sharpe, axis=1) <= _TIE).all():
        raise ValueError(f"backtest overfitting needs Sharpe ratios that differ, but all {returns.shape[1]} are equal")
    chosen = np.argmax(sharpe >= sharpe.max(axis=1, keepdims=True) - _TIE, axis=1)  # the first of equals
    rows = np.arange(len(sharpe))
    others = sharpe[::-1]  # the complement of the i-th combination is the i-th from the end
    out_of_sample = others[rows, chosen]
    below = (others < out_of_sample[:, None] - _TIE).sum(axis=1)
    equal = (np.abs(others - out_of_sample[:, None]) <= _TIE).sum(axis=1)
    ranks = below + (equal + 1.0) / 2.0
    return BacktestOverfitting(
        n_blocks=n_blocks,
        chosen=chosen,
        in_sample=sharpe[rows, chosen],
        out_of_sample=out_of_sample,
        logits=np.log(ranks / (returns.shape[1] + 1.0 - ranks)),
    )


def _sharpe_of_halves(blocks: FloatArray, inside: FloatArray) -> FloatArray:
    """Sharpe ratios (C, N) on the blocks (S, size, N) that each row of `inside` (C, S) selects; 0 if constant."""
    center = blocks.mean(axis=(0, 1))
    residuals = blocks - center
    n = blocks.shape[1] * int(inside[0].sum())
    sums = inside @ residuals.sum(axis=1), inside @ (residuals**2).sum(axis=1)
    return sharpe_of_sums(sums, n, center, np.abs(blocks).max(axis=(0, 1)))[1]


def _require_trials(returns: FloatArray, n_blocks: int) -> None:
    if returns.ndim != 2 or returns.shape[1] < 2:
        raise ValueError(f"backtest overfitting: needs two or more trials in columns, got shape {returns.shape}")
    if not np.isfinite(returns).all():
        raise ValueError(f"backtest overfitting: {int((~np.isfinite(returns)).sum())} returns are not finite")
    if n_blocks % 2 or not 2 <= n_blocks <= MAX_BLOCKS:
        raise ValueError(f"backtest overfitting: n_blocks must be even and from 2 to {MAX_BLOCKS}, got {n_blocks}")
    if len(returns) < 2 * n_blocks:
        raise ValueError(f"{n_blocks} blocks need at least two sessions each, but there are {len(returns)} sessions")
    if (np.ptp(returns, axis=1) <= NO_SPREAD * np.abs(returns).max()).all():
        raise ValueError(f"backtest overfitting needs trials that differ, but all {returns.shape[1]} are equal")
