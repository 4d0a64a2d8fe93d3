"""Sixty monthly mean-CVaR rebalances of 50 names on 10,000 scenarios each."""

from statistics import median
from time import process_time

import numpy as np

from benchmarks.claim import Goal, report
from benchmarks.fat_tailed import fat_tailed_returns, names
from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective
from nvtrader_pipelines.portfolio.scenarios import KernelDensity

N_NAMES, N_SCENARIOS, N_WINDOWS, LOOKBACK, MONTH, N_ROUNDS = 50, 10_000, 60, 504, 21, 3


def walk(seed: int, n_windows: int = N_WINDOWS) -> tuple[float, float]:
    """CPU seconds of drawing and of solving; each window starts from drifted weights."""
    returns = fat_tailed_returns(N_NAMES, LOOKBACK + MONTH * N_WINDOWS)
    spec, generator = KernelDensity(n_scenarios=N_SCENARIOS, horizon=MONTH), np.random.default_rng(seed)
    optimizer = MeanCvar(
        names(N_NAMES), Constraints(cap=0.05, cash_floor=0.02, turnover=0.2), Objective(0.95, cost_bps=10.0)
    )
    weights, drawing, solving = np.full(N_NAMES, 0.98 / N_NAMES), 0.0, 0.0
    for window in range(n_windows):
        now = LOOKBACK + MONTH * window
        start = process_time()
        scenarios = spec.draw(returns[now - LOOKBACK : now], generator)
        drawn = process_time()
        solution = optimizer.solve(scenarios, current=weights, expected_returns=scenarios.mean(axis=0))
        solving += process_time() - drawn
        drawing += drawn - start
        grown = solution.weights * np.prod(1.0 + returns[now : now + MONTH], axis=0)
        weights = grown / (grown.sum() + solution.cash)
    return drawing, solving


def main() -> None:
    """Report the seconds of all sixty."""
    walk(0, n_windows=1)  # the structure of the model is compiled once
    drawing, solving = np.array([walk(seed) for seed in range(N_ROUNDS)]).T
    total = drawing + solving
    report(
        "mean_cvar_monthly",
        median(total),
        "s",
        Goal(value_at_most=3.0),
        note=f"CPU time of one thread, median of {N_ROUNDS} walks over {N_WINDOWS} windows of {LOOKBACK} sessions; "
        f"kernel density over {MONTH} sessions {median(drawing):.2f} s, {median(drawing) / median(total):.0%} of it, "
        f"and solves {median(solving):.2f} s with turnover budget 20 %, L1 cost 10 bps, mean, cap 5 % and cash floor",
    )


if __name__ == "__main__":
    main()
