"""Optimum of random mean-CVaR portfolios against the whole Rockafellar-Uryasev program."""

from collections import Counter
from typing import cast

import cvxpy as cp
import numpy as np

from benchmarks.claim import Goal, report
from benchmarks.fat_tailed import FloatArray, fat_tailed_returns, names
from nvtrader_pipelines.portfolio.mean_cvar import Constraints, InfeasibleError, MeanCvar, Objective
from nvtrader_pipelines.portfolio.scenarios import BlockBootstrap, Historical, KernelDensity

N_INSTANCES = 300
SIZES = ((3, 500), (8, 1000), (8, 5000), (20, 1000), (20, 2000), (50, 1000), (100, 1000))
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
CLOSE = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
SMALLEST = 1e-6  # of the deviation of losses x risk aversion: smallest denominator of a relative difference


def scenarios_of(generator: np.random.Generator, n_names: int, n_scenarios: int) -> FloatArray:
    """Draw smooth scenarios, blocks with many ties, or historical returns."""
    past, horizon = fat_tailed_returns(n_names), int(generator.integers(1, 21))
    kinds = (
        KernelDensity(n_scenarios=n_scenarios, horizon=horizon),
        BlockBootstrap(n_scenarios=n_scenarios, horizon=horizon),
        Historical(horizon=horizon),
    )
    return kinds[generator.integers(3)].draw(past, generator)


def difference(seed: int) -> tuple[float, str] | None:
    """Relative difference of the objective to the reference, and the solver of the reference.

    None if the random constraints are infeasible, for this package and for an independent program.

    Raises:
        RuntimeError: if only the package finds them infeasible.
    """
    generator = np.random.default_rng(seed)
    n_names, n_scenarios = SIZES[generator.integers(len(SIZES))]
    scenarios = scenarios_of(generator, n_names, n_scenarios)
    rebalances, volatile = generator.random() < 0.7, generator.random() < 0.15
    shorts = generator.random() < 0.2
    sectors = {name: f"S{i % 3}" for i, name in enumerate(names(n_names))}
    constraints = Constraints(
        floor=-0.1 if shorts else 0.0,
        cap=generator.uniform(1.2, 4.0) / n_names,
        cash_floor=generator.uniform(0.0, 0.1),
        cash_ceiling=generator.uniform(0.1, 0.5) if generator.random() < 0.3 else None,
        turnover=generator.uniform(0.1, 0.6) if rebalances else None,
        gross=generator.uniform(1.0, 1.6) if shorts else None,
        sectors=sectors,
        sector_caps={"S0": generator.uniform(0.3, 0.6)} if generator.random() < 0.3 else {},
    )
    objective = Objective(
        confidence_level=generator.uniform(0.85, 0.99),
        risk_aversion=10.0 ** generator.uniform(-1.0, 1.0),
        cost_bps=generator.uniform(0.0, 50.0) if rebalances else 0.0,
        volatility_penalty=generator.uniform(0.1, 1.0) if volatile else 0.0,
    )
    market = {
        "current": generator.dirichlet(np.ones(n_names)) if rebalances else None,
        "expected_returns": scenarios.mean(axis=0) if generator.random() < 0.7 else None,
        "volatility_factor": np.linalg.cholesky(np.cov(scenarios, rowvar=False)) if volatile else None,
    }
    try:
        optimizer = MeanCvar(names(n_names), constraints, objective)
        found = optimizer.solve(scenarios, **market).objective
    except InfeasibleError as failure:
        if is_feasible(constraints, n_names, market["current"]):
            raise RuntimeError(f"the constraints of seed {seed} are feasible, but the solver failed") from failure
        return None
    reference = optimizer.reference(scenarios, **market)
    solver, settings = (cp.CLARABEL, CLOSE) if volatile else (cp.HIGHS, EXACT)
    expected = cast("float", reference.solve(solver=solver, **settings))
    smallest = SMALLEST * objective.risk_aversion * float((scenarios @ np.full(n_names, 1.0 / n_names)).std())
    return abs(found - expected) / max(abs(expected), smallest), solver


def is_feasible(constraints: Constraints, n_names: int, current: FloatArray | None) -> bool:
    """Whether a portfolio meets the constraints, by an independent program."""
    weights = cp.Variable(n_names)
    cash = 1.0 - cp.sum(weights)
    ceiling = constraints.cash_floor if constraints.cash_ceiling is None else constraints.cash_ceiling
    limits = [
        weights >= constraints.floor,
        weights <= constraints.cap,
        cash >= constraints.cash_floor,
        cash <= ceiling,
    ]
    if constraints.turnover is not None and current is not None:
        changes = cp.norm1(weights - current) + cp.abs(cash - (1.0 - current.sum()))
        limits.append(0.5 * changes <= constraints.turnover)
    if constraints.gross is not None:
        limits.append(cp.norm1(weights) <= constraints.gross)
    for sector, cap in constraints.sector_caps.items():
        members = [i for i, name in enumerate(names(n_names)) if constraints.sectors[name] == sector]
        limits.append(cp.sum(weights[members]) <= cap)
    problem = cp.Problem(cp.Minimize(0.0), limits)
    problem.solve(solver=cp.HIGHS)
    return problem.status != cp.INFEASIBLE


def main() -> None:
    """Report the largest difference."""
    found = [difference(seed) for seed in range(N_INSTANCES)]
    solved = [each for each in found if each is not None]
    counts = Counter(solver for _, solver in solved)
    report(
        "mean_cvar_objective",
        max(each for each, _ in solved),
        "relative",
        Goal(value_at_most=1e-6),
        note=f"largest of {len(solved)} random instances ({N_INSTANCES - len(solved)} more contradict themselves, as a "
        f"program of their constraints alone confirms), relative to the reference's objective, or to {SMALLEST:g} of "
        "deviation x risk aversion if that is more: "
        "3 to 100 names, 485 to 5,000 scenarios, kernel, blocks and history, with and without turnover, cost, mean, "
        "cash, sectors, short positions and volatility penalty; the reference solved by "
        + " and ".join(f"{solver} ({n})" for solver, n in counts.items()),
    )


if __name__ == "__main__":
    main()
