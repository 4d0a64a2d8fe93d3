"""Mean-CVaR by names, scenarios and correlation against the whole program in HiGHS."""

from functools import partial
from itertools import product
from statistics import median
from time import process_time
from typing import get_args

import numpy as np

from benchmarks.claim import Goal, median_ratio, report, time_rounds
from benchmarks.fat_tailed import FloatArray, names
from nvtrader_pipelines.portfolio.mean_cvar import MeanCvar, MeanCvarSolution
from nvtrader_pipelines.portfolio.mean_cvar.solution import Method

NAMES, SCENARIOS, N_ROUNDS = (20, 50, 100, 150), (250, 1000, 5000), 3
GOALS = {0.0: Goal(ratio_at_most=3.5), 0.3: Goal(ratio_at_most=1.0)}
OBJECTIVE_TOLERANCE = 1e-6


def equicorrelated_returns(n_names: int, n_scenarios: int, correlation: float, seed: int) -> FloatArray:
    """Simple returns (S, N): one factor and noise, both Student's t with 4 degrees of freedom."""
    generator = np.random.default_rng(seed)
    factor = np.sqrt(correlation) * generator.standard_t(4, (n_scenarios, 1))
    noise = np.sqrt(1.0 - correlation) * generator.standard_t(4, (n_scenarios, n_names))
    return 4e-4 + 0.01 * generator.uniform(0.5, 1.5, n_names) * (factor + noise)


def compare_methods(n_names: int, n_scenarios: int, correlation: float) -> tuple[float, float, str]:
    """CPU milliseconds of a solve, its ratio to the whole program, and the method that ended it.

    Raises:
        RuntimeError: if the two objectives differ by more than 1e-6.
    """
    optimizer = MeanCvar(names(n_names))
    markets = [equicorrelated_returns(n_names, n_scenarios, correlation, seed) for seed in range(N_ROUNDS)]
    solutions: dict[tuple[Method, int], MeanCvarSolution] = {}

    def solve(method: Method, number: int) -> None:
        solutions[method, number] = optimizer.solve(markets[number], method=method)

    implementations = {method: partial(solve, method) for method in get_args(Method)}
    seconds = time_rounds(implementations, N_ROUNDS, clock=process_time)
    for number in range(N_ROUNDS):
        found, whole = solutions["cuts", number].objective, solutions["rockafellar_uryasev", number].objective
        if not abs(found / whole - 1.0) <= OBJECTIVE_TOLERANCE:
            raise RuntimeError(f"the objectives of both methods must be equal, but are {found} and {whole}")
    used = sorted({solutions["cuts", number].method for number in range(N_ROUNDS)})
    ratio = median_ratio(seconds, "cuts", "rockafellar_uryasev")
    return 1e3 * median(seconds["cuts"]), ratio, " or ".join(used)


def main() -> None:
    """Report the largest ratio over the sizes, for each correlation."""
    for correlation, goal in GOALS.items():
        cells = {size: compare_methods(*size, correlation) for size in product(NAMES, SCENARIOS)}
        slowest = max(milliseconds for milliseconds, _, _ in cells.values())
        report(
            f"mean_cvar_sizes_correlation_{correlation:g}",
            slowest,
            "ms",
            goal,
            ratio=max(ratio for _, ratio, _ in cells.values()),
            note=f"CPU time of the slowest size, and the largest ratio to the whole program in HiGHS, of {len(cells)} "
            f"sizes, each the median of {N_ROUNDS} rounds of other scenarios: least CVaR, long-only, fully invested, "
            f"names correlated {correlation:g}; names x scenarios, and the method that ended the solve: "
            + ", ".join(
                f"{n}x{s} {milliseconds:.0f} ms ({ratio:.2f}x, {method})"
                for (n, s), (milliseconds, ratio, method) in cells.items()
            ),
        )


if __name__ == "__main__":
    main()
