"""Solution of a cuFOLIO rebalance by the Mean-CVaR optimizer."""

from dataclasses import replace
from typing import Any, cast

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.cufolio import CufolioProgram, NoPortfolioError, Rebalance
from nvtrader_pipelines.portfolio.mean_cvar import (
    Constraints,
    MeanCvar,
    MeanCvarError,
    Objective,
    SolveInputs,
    best_within_cvar,
    least_turnover,
    resolve_limits,
)
from nvtrader_pipelines.portfolio.scenarios import KernelDensity

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
        rebalance.past, np.random.default_rng(program.scenario_seed)
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
    return _near(rebalance.center, rebalance.max_distance, constraints, rebalance.current, (least, most))


def _near(
    center: FloatArray,
    distance: float,
    constraints: Constraints,
    current: FloatArray,
    invested_range: tuple[float, float],
) -> Constraints:
    """Constrain the names to a one-way distance of the center (M,), or to the least that the others leave."""
    weights = cp.Variable(len(current), bounds=[constraints.floor, constraints.cap])
    invested = cp.sum(weights)
    others: list[Any] = [invested <= invested_range[1], invested >= invested_range[0]]
    if constraints.turnover is not None:
        others.append(_one_way(weights, current) <= constraints.turnover)
    problem = cp.Problem(cp.Minimize(_one_way(weights[: len(center)], center)), others)
    budget = max(distance, cast("float", problem.solve(solver=cp.HIGHS)) + SLACK)
    return replace(constraints, further=lambda weights: [_one_way(weights[: len(center)], center) <= budget])


def _one_way(weights: cp.Expression, start: FloatArray) -> cp.Expression:
    """One-way distance of weights (M,) from others, cash included."""
    change = weights - start
    return cp.maximum(cp.sum(cp.pos(change)), cp.sum(cp.neg(change)))


def _square_root(scenarios: FloatArray) -> FloatArray:
    """Return L (N, K) with L L' the covariance of scenarios (S, N)."""
    triangle = np.asarray(np.linalg.qr(scenarios - scenarios.mean(axis=0), mode="r"))
    return triangle.T / np.sqrt(len(scenarios))
