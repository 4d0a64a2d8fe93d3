"""Synthetic returns with fat tails and common factors for the portfolio benchmarks."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.scenarios import KernelDensity

FloatArray = NDArray[np.float64]
N_FACTORS, DEGREES_OF_FREEDOM = 5, 4


@cache
def fat_tailed_returns(n_names: int, n_sessions: int = 504, seed: int = 7) -> FloatArray:
    """Simple session returns (T, N): five factors and own noise, Student's t.

    A name has about 1.5 % volatility a session, half its variance from the factors, and earns 2 to 14 % a year.
    """
    generator = np.random.default_rng(seed)
    loadings = generator.normal(0.7, 0.4, (N_FACTORS, n_names))
    drift = generator.uniform(0.02, 0.14, n_names) / 252.0
    factors = 0.0045 * generator.standard_t(DEGREES_OF_FREEDOM, (n_sessions, N_FACTORS))
    own = 0.0075 * generator.standard_t(DEGREES_OF_FREEDOM, (n_sessions, n_names))
    return np.expm1(drift + factors @ loadings + own)


def kernel_scenarios(n_names: int, n_scenarios: int, seed: int, horizon: int = 20) -> FloatArray:
    """Simple returns over the horizon (S, N) from the kernel density of synthetic returns."""
    spec = KernelDensity(n_scenarios=n_scenarios, horizon=horizon)
    return spec.draw(fat_tailed_returns(n_names), np.random.default_rng(seed))


def names(n_names: int) -> list[str]:
    """Names of the columns."""
    return [f"N{i:03d}" for i in range(n_names)]
