"""Mean-CVaR of 8 names on 5,000 scenarios: whole trials, and solves against three peers."""

from statistics import median
from time import process_time

import numpy as np

from benchmarks.claim import Goal, report
from benchmarks.fat_tailed import fat_tailed_returns, names
from benchmarks.portfolio_peers import report_against_peers
from nvtrader_pipelines.portfolio.cufolio import CufolioProgram, Rebalance
from nvtrader_pipelines.portfolio.cufolio_solver import solve_rebalance
from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective
from nvtrader_pipelines.portfolio.scenarios import KernelDensity

N_NAMES, N_TRIALS = 8, 60


def trial(seed: int) -> tuple[float, float]:
    """CPU seconds of drawing the scenarios and of solving, with random parameters."""
    generator = np.random.default_rng(seed)
    past, current = fat_tailed_returns(N_NAMES), generator.dirichlet(np.full(N_NAMES, 4.0))
    cap, turnover, level = generator.uniform(0.3, 0.5), generator.uniform(0.3, 0.6), generator.uniform(0.9, 0.99)
    start = process_time()
    scenarios = KernelDensity(n_scenarios=5000, horizon=20).draw(past, generator)
    drawn = process_time()
    constraints = Constraints(cap=cap, cash_floor=0.02, turnover=turnover)
    optimizer = MeanCvar(names(N_NAMES), constraints, Objective(level, cost_bps=10.0))
    optimizer.solve(scenarios, current=current, expected_returns=scenarios.mean(axis=0))
    return drawn - start, process_time() - drawn


def report_rebalance() -> None:
    """Report the median rebalance of the cufolio component, and of its hard CVaR limit."""
    past, generator = fat_tailed_returns(N_NAMES), np.random.default_rng(0)
    medians = []
    for program in (
        CufolioProgram(max_turnover=0.3),
        CufolioProgram(max_turnover=0.3, cash_ceiling=1.0, max_cvar=0.05),
    ):
        seconds = []
        for _ in range(N_TRIALS + 1):
            rebalance = Rebalance(past, generator.dirichlet(np.full(N_NAMES, 20.0)))
            start = process_time()
            solve_rebalance(program, rebalance)
            seconds.append(process_time() - start)
        medians.append(median(seconds[1:]) * 1e3)
    report(
        f"cufolio_{N_NAMES}x5000",
        medians[0],
        "ms",
        Goal(value_at_most=50.0),
        note=f"CPU time of one thread, median of {N_TRIALS} rebalances with the default knobs and a turnover budget of "
        f"30 %, scenarios included; {medians[1]:.0f} ms with a hard CVaR limit and free cash",
    )


def main() -> None:
    """Report the median trial, and the ratio to each peer."""
    trial(0)  # the structure of the model is compiled once
    drawing, solving = np.array([trial(seed) for seed in range(1, N_TRIALS + 1)]).T * 1e3
    total = drawing + solving
    report(
        f"mean_cvar_{N_NAMES}x5000",
        median(total),
        "ms",
        Goal(value_at_most=10.0),
        note=f"CPU time of one thread, median of {N_TRIALS} trials (95 % within {np.quantile(total, 0.95):.1f}); "
        f"kernel density over 20 sessions {median(drawing):.2f} ms, {median(drawing) / median(total):.0%} of it, and "
        f"solve {median(solving):.2f} ms with turnover budget, L1 cost, mean and cash floor, each certified to 1e-7; "
        "level, cap and budget differ in every trial",
    )
    report_rebalance()
    report_against_peers(N_NAMES, 0.3, 20, Goal(ratio_at_least=8.0))
    report_against_peers(N_NAMES, 0.3, 10, Goal(ratio_at_least=8.0), rebalances=True)


if __name__ == "__main__":
    main()
