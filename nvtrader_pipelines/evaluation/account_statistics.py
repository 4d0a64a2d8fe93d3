"""What an account did for its returns, each as one number: turnover, costs, holdings, time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.market.calendar import SESSIONS_PER_YEAR


def _checked(name: str, values: NDArray[np.float64], n_axes: int = 1) -> NDArray[np.float64]:
    if values.ndim != n_axes or not len(values) or not np.isfinite(values).all():
        raise ValueError(
            f"{name} needs finite numbers on {n_axes} axes, at least one row, but got shape {values.shape} with "
            f"{int((~np.isfinite(values)).sum())} not finite"
        )
    return values


def turnover_per_year(turnover: NDArray[np.float64], periods_per_year: int = SESSIONS_PER_YEAR) -> float:
    """One-way turnover of a year, from that of each session (n,); 0 in sessions without a trade.

    Raises:
        ValueError: if there are no sessions or a number is not finite.
    """
    return float(_checked("turnover", turnover).mean()) * periods_per_year


def cost_per_year(cost: NDArray[np.float64], periods_per_year: int = SESSIONS_PER_YEAR) -> float:
    """Costs paid in a year, from those of each session (n,), fractions of equity.

    Raises:
        ValueError: if there are no sessions or a number is not finite.
    """
    return float(_checked("cost", cost).mean()) * periods_per_year


def exposure(cash: NDArray[np.float64]) -> float:
    """Mean weight that is not in cash, from the weight of cash at each close (n,); above 1 with borrowed money.

    Raises:
        ValueError: if there are no sessions or a number is not finite.
    """
    return 1.0 - float(_checked("exposure", cash).mean())


def effective_names(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Number of equal holdings as concentrated as the names held (n,): 1 / sum w^2 with |w| scaled to sum 1.

    An account that holds no name has 0.

    Args:
        weights: (n, N) of the names, cash left out; short positions count by their size.

    Raises:
        ValueError: if a weight is not finite.

    Source: the inverse of the Herfindahl index.
    """
    held = np.abs(_checked("the effective number of names", weights, 2))
    gross = held.sum(axis=1, keepdims=True)
    shares = np.divide(held, gross, out=np.zeros_like(held), where=gross > 0.0)
    concentration = np.square(shares).sum(axis=1)
    return np.divide(1.0, concentration, out=np.zeros(len(held)), where=concentration > 0.0)


@dataclass(frozen=True)
class ExecutionLatency:
    """Seconds from a decision's data to its weights."""

    median: float
    p99: float  # 99th percentile, interpolated linearly


def execution_latency(seconds: Sequence[float] | NDArray[np.float64]) -> ExecutionLatency:
    """Median and 99th percentile of the durations of single decisions (n,), in seconds.

    Raises:
        ValueError: if there are none, or one is negative or not finite.
    """
    durations = _checked("execution latency", np.asarray(seconds, dtype=np.float64))
    if durations.min() < 0.0:
        raise ValueError(
            f"a decision takes 0 seconds or more, but one took {durations.min():.6g}; use a clock that never goes back"
        )
    median, p99 = np.percentile(durations, (50.0, 99.0))
    return ExecutionLatency(float(median), float(p99))
