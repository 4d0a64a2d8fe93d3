"""Solution of a cuFOLIO rebalance by the Mean-CVaR optimizer."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import nvtrader_pipelines.portfolio.scenario_loop  # noqa: F401 - compiled before workers fork
from nvtrader_pipelines.portfolio.cufolio import CufolioProgram, NoPortfolioError, Rebalance
from nvtrader_pipelines.portfolio.mean_cvar import (
    Constraints,
    MeanCvar,
    MeanCvarError,
    Objective,
    SolveInputs,
    best_within_cvar,
    least_distance,
    least_turnover,
    resolve_limits,
)
from nvtrader_pipelines.portfolio.scenarios import KernelDensity, RepeatedNumbers

FloatArray = NDArray[np.float64]
DUST = 1e-12  # weights below it are rounding
SLACK = 1e-6  # added to the least budget that can be met, which only a single portfolio meets


def solve_rebalance(program: CufolioProgram, rebalance: Rebalance) -> FloatArray:
    """Return the optimal weights (M,).

    Raises:
        NoPortfolioError: if no portfolio meets the CVaR limit, or the optimum is not certified.
    """
    columns, n_names = rebalance.columns, len(rebalance.held)
    drawn = KernelDensity(n_scenarios=program.n_scenarios, horizon=program.cufolio_hold_days).draw(
        rebalance.past, RepeatedNumbers(program.scenario_seed)
    )
    scenarios = np.hstack([drawn, np.zeros((len(drawn), len(columns) - n_names))])
    factor = _square_root(scenarios) if program.volatility_penalty else None
    inputs = SolveInputs(scenarios, rebalance.current, scenarios.mean(axis=0), factor)
    objective = Objective(program.cvar_alpha, program.risk_aversion, program.cost_bps, program.volatility_penalty)
    constraints = _constraints(program, rebalance)
    try:
        if program.max_cvar is None:
            weights = MeanCvar(columns, constraints, objective).solve(**inputs._asdict()).weights
        else:
            weights = best_within_cvar(columns, constraints, objective, program.max_cvar, inputs)
    except MeanCvarError as failure:
        raise NoPortfolioError(str(failure)) from failure
    return np.where(weights[:n_names] > DUST, weights[:n_names], 0.0)


def _constraints(program: CufolioProgram, rebalance: Rebalance) -> Constraints:
    """Constraints on the columns of a rebalance, with budgets that can be met."""
    n_names, kept = len(rebalance.held), rebalance.other_kept
    others = [kept] * (len(rebalance.columns) - n_names)
    least, most = (
        max(invested, kept) for invested in program.invested_range(n_names * program.max_position_pct + kept)
    )
    constraints = Constraints(
        floor=np.array([0.0] * n_names + others),
        cap=np.array([program.max_position_pct] * n_names + others),
        cash_floor=1.0 - most,
        cash_ceiling=1.0 - least,
    )
    if program.max_turnover is not None:
        needed = least_turnover(rebalance.current, resolve_limits(rebalance.columns, constraints))
        constraints = replace(constraints, turnover=max(program.max_turnover, needed + SLACK))
    if rebalance.center is None:
        return constraints
    center = np.append(rebalance.center, others)
    needed = least_distance(center, rebalance.current, resolve_limits(rebalance.columns, constraints))
    return replace(constraints, center=center, distance=max(rebalance.max_distance, needed + SLACK))


def _square_root(scenarios: FloatArray) -> FloatArray:
    """Return L (N, K) with L L' the covariance of scenarios (S, N)."""
    triangle = np.asarray(np.linalg.qr(scenarios - scenarios.mean(axis=0), mode="r"))
    return triangle.T / np.sqrt(len(scenarios))
