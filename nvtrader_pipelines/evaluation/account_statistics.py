"""Statistics of an account beyond its returns: turnover, costs, exposure, concentration, latency.

All raise a ValueError if there are no rows or a number is not finite.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays


def _require_finite(name: str, values: NDArray[np.float64], n_axes: int = 1) -> NDArray[np.float64]:
    if values.ndim != n_axes or not len(values) or not np.isfinite(values).all():
        n_bad = int((~np.isfinite(values)).sum())
        raise ValueError(f"{name}: needs finite rows on {n_axes} axes, got shape {values.shape}, {n_bad} not finite")
    return values


@takes_arrays
def turnover_per_year(turnover: NDArray[np.float64], periods_per_year: int) -> float:
    """Annual one-way turnover, from turnover per session (n,), which is 0 without a trade."""
    return float(_require_finite("turnover", turnover).mean()) * periods_per_year


@takes_arrays
def cost_per_year(cost: NDArray[np.float64], periods_per_year: int) -> float:
    """Annual costs as a fraction of equity, from costs per session (n,)."""
    return float(_require_finite("cost", cost).mean()) * periods_per_year


@takes_arrays
def exposure(cash: NDArray[np.float64]) -> float:
    """Mean weight outside cash, from cash weights at each close (n,); above 1 when leveraged."""
    return 1.0 - float(_require_finite("exposure", cash).mean())


@takes_arrays
def effective_names(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Effective number of names (n,): 1 / sum w^2 with |w| scaled to sum 1; 0 without holdings.

    Weights (n, N) are of the names, without cash; short positions count by size.

    Source: inverse Herfindahl index.
    """
    held = np.abs(_require_finite("effective names", weights, 2))
    gross = held.sum(axis=1, keepdims=True)
    shares = np.divide(held, gross, out=np.zeros_like(held), where=gross > 0.0)
    concentration = np.square(shares).sum(axis=1)
    return np.divide(1.0, concentration, out=np.zeros(len(held)), where=concentration > 0.0)


@dataclass(frozen=True)
class Leverage:
    """Gross of an account at its closes, and what its debt and short positions cost."""

    mean_gross: float
    max_gross: float
    financing_per_year: float  # interest and borrow fees, fraction of equity


@takes_arrays
def leverage(gross: NDArray[np.float64], financing: NDArray[np.float64], periods_per_year: int) -> Leverage:
    """Leverage of an account, from gross at each close (n,) and financing per session (n,)."""
    closes, paid = _require_finite("gross", gross), _require_finite("financing", financing)
    return Leverage(float(closes.mean()), float(closes.max()), float(paid.mean()) * periods_per_year)


@dataclass(frozen=True)
class ExecutionLatency:
    """Seconds between a decision's data and its weights."""

    median: float
    p99: float  # 99th percentile, linear interpolation


@takes_arrays
def execution_latency(seconds: Sequence[float] | NDArray[np.float64]) -> ExecutionLatency:
    """Median and 99th percentile of decision times (n,), in seconds; none may be negative."""
    durations = _require_finite("execution latency", np.asarray(seconds, dtype=np.float64))
    if durations.min() < 0.0:
        raise ValueError(f"execution latency: negative duration {durations.min():.6g}; use a monotonic clock")
    median, p99 = np.percentile(durations, (50.0, 99.0))
    return ExecutionLatency(float(median), float(p99))
