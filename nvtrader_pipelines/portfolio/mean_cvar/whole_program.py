"""Whole Rockafellar-Uryasev program: reference and fallback of the cutting planes."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, cast

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from nvtrader_pipelines.portfolio.mean_cvar.cuts import Bounds
from nvtrader_pipelines.portfolio.mean_cvar.model import (
    FurtherConstraints,
    Model,
    ParameterValues,
    Structure,
    build_model,
)
from nvtrader_pipelines.portfolio.mean_cvar.problem_instance import ProblemInstance, tangent_at
from nvtrader_pipelines.portfolio.mean_cvar.solution import TOLERANCE, InfeasibleError, UncertifiedError, relative_gap

FloatArray = NDArray[np.float64]
CONIC_OPTIONS = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
LINEAR_OPTIONS = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
MAX_TANGENTS = 20  # added to close the gap that a solver leaves
INFEASIBLE = frozenset({cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE})
INTEGER_OPTIONS = LINEAR_OPTIONS | {"mip_feasibility_tolerance": 1e-9, "mip_rel_gap": 1e-8, "mip_abs_gap": 1e-10}


@dataclass(frozen=True, eq=False)
class Program:
    """Whole program, with the weights and constraints that are read after a solve."""

    problem: cp.Problem
    weights: cp.Variable  # (N,)
    excesses: cp.Constraint  # one per scenario; its multiplier is the share of the scenario in the tail


def whole_program(
    structure: Structure, further: FurtherConstraints | None, values: ParameterValues, instance: ProblemInstance
) -> Program:
    """Build the program with value at risk and excess losses as variables, in instance units.

    `cp.cvar` and `cp.sum_largest` fail once the weights have a value (cvxpy 1.9.3), so neither is used.

    Source: Rockafellar & Uryasev (2000), equation 17.
    """
    model = _model(structure, further, values)
    returns = instance.scenarios * instance.risk
    level, excess = cp.Variable(), cp.Variable(len(returns), nonneg=True)
    excesses = excess + level + returns @ model.weights >= 0.0
    constraints = [*model.constraints, excesses, model.cvar >= level + cp.sum(excess) / instance.tail_size]
    if instance.volatility_factor is not None:
        constraints.append(model.volatility >= cp.norm(instance.volatility_factor.T @ model.weights))
    return Program(cp.Problem(cp.Minimize(model.objective), constraints), model.weights, excesses)


def min_turnover(structure: Structure, further: FurtherConstraints | None, values: ParameterValues) -> float | None:
    """Smallest one-way turnover under all other constraints; None if they are infeasible."""
    model = _model(replace(structure, turnover=False), further, values)
    problem = cp.Problem(cp.Minimize(model.turnover), model.constraints)
    _solve(problem)
    return None if problem.status in INFEASIBLE else _value(problem)


def solve_whole(
    structure: Structure, further: FurtherConstraints | None, values: ParameterValues, instance: ProblemInstance
) -> Bounds:
    """Solve the whole program and bound its optimum.

    The upper bound is the objective recomputed at the solver's weights. The lower bound does not rely on the solver's
    status: the multipliers of the scenarios, adjusted to probabilities of at most 1 / tail size, give a plane below the
    CVaR. With the plane in place of the CVaR a small program without scenarios remains, whose optimum
    `_solve_relaxation` bounds. Solvers leave a gap of about 1e-8; tangents at the small program's weights close it.
    With integer constraints the lower bound is that of HiGHS's branch and bound.

    Raises:
        InfeasibleError: if no weights satisfy the constraints.
        UncertifiedError: if the solver returns no weights.
    """
    program = whole_program(structure, further, values, instance)
    problem = program.problem
    _solve(problem)
    if problem.status in INFEASIBLE:
        raise InfeasibleError("the constraints contradict each other")
    if program.weights.value is None:
        raise UncertifiedError(f"the solver returned no weights, but status {problem.status!r}; check the constraints")
    weights = np.asarray(program.weights.value)
    stats = cast("Any", problem.solver_stats)
    bounds = Bounds(weights, tangent_at(instance, weights).objective, -np.inf, int(stats.num_iters or 0))
    if problem.is_mixed_integer():
        info = stats.extra_stats
        return replace(bounds, lower=_value(problem) + info.mip_dual_bound - info.objective_function_value)
    multipliers = np.asarray(program.excesses.dual_value)
    probability = _nearest_probability(multipliers, 1.0 / instance.tail_size)
    return _close_gap(_model(structure, further, values), instance, bounds, probability)


def _value(problem: cp.Problem) -> float:
    return float(cast("float", problem.value))


def _model(structure: Structure, further: FurtherConstraints | None, values: ParameterValues) -> Model:
    return build_model(structure, {name: cp.Constant(value) for name, value in values.items()}, further)


def _solve(problem: cp.Problem) -> None:
    """Solve a linear or mixed-integer program with HiGHS, and one with cones with Clarabel."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")  # the recomputed bounds decide
        try:
            if problem.is_mixed_integer():
                problem.solve(solver=cp.HIGHS, **INTEGER_OPTIONS)
            elif problem.is_lp():
                problem.solve(solver=cp.HIGHS, **LINEAR_OPTIONS)
            else:
                problem.solve(solver=cp.CLARABEL, **CONIC_OPTIONS)
        except cp.SolverError as failure:
            raise UncertifiedError(f"no solver solved the program: {failure}; check the constraints") from failure


def _close_gap(model: Model, instance: ProblemInstance, bounds: Bounds, probability: FloatArray) -> Bounds:
    """Tighten the bounds by planes below CVaR and volatility, up to the tolerance."""
    planes: list[Any] = [model.cvar >= -instance.risk * (instance.scenarios.T @ probability) @ model.weights]
    tried = bounds.weights
    for _ in range(MAX_TANGENTS):
        tangent = tangent_at(instance, tried)
        if tangent.objective < bounds.upper:
            bounds = replace(bounds, weights=tried, upper=tangent.objective)
        if relative_gap(bounds.upper, bounds.lower) <= TOLERANCE:
            break
        planes.append(model.cvar >= tangent.cvar @ model.weights)
        if tangent.volatility is not None:
            planes.append(model.volatility >= tangent.volatility @ model.weights)
        problem = cp.Problem(cp.Minimize(model.objective), [*model.constraints, *planes])
        tried, lower = _solve_relaxation(problem, model.weights)
        bounds = replace(bounds, lower=max(bounds.lower, lower))
    return bounds


def _nearest_probability(multipliers: FloatArray, largest: float) -> FloatArray:
    """Adjust multipliers (S,) so that they lie between 0 and `largest` and sum to 1."""
    inside = np.clip(multipliers, 0.0, largest)
    room = largest - inside
    missing = 1.0 - inside.sum()
    return inside + missing * room / room.sum() if missing > 0.0 else inside / inside.sum()


def _solve_relaxation(problem: cp.Problem, weights: cp.Variable) -> tuple[FloatArray, float]:
    """Solve a linear or second-order program; return weights (N,) and a lower bound.

    The bound is the optimum of a linear program: Clarabel's multiplier of each cone, moved into the dual cone, gives a
    linear inequality that holds on the whole cone. Any multipliers give a bound; exact ones give the optimum.
    """
    data, chain, _ = cast("Any", problem.get_problem_data(cp.CLARABEL))
    matrix, rhs, dims = data["A"].toarray(), data["b"], data["dims"]
    n_zero, n_linear = dims.zero, dims.zero + dims.nonneg
    rows, bounds = matrix[n_zero:n_linear], rhs[n_zero:n_linear]
    conic: Any = chain.solve_via_data(problem, data, solver_opts=dict(CONIC_OPTIONS)) if dims.soc else None
    start = n_linear
    for size in dims.soc:
        cone, multiplier = slice(start, start + size), np.array(conic.z[start : start + size])
        multiplier[0] = max(multiplier[0], float(np.linalg.norm(multiplier[1:])))
        rows, bounds = np.vstack([rows, multiplier @ matrix[cone]]), np.append(bounds, multiplier @ rhs[cone])
        start += size
    equalities = {"A_eq": matrix[:n_zero], "b_eq": rhs[:n_zero]}
    relaxed = linprog(data["c"], rows, bounds, **equalities, bounds=(None, None), options=LINEAR_OPTIONS)
    if relaxed.status != 0:
        raise UncertifiedError(
            f"the linear program of the lower bound has no optimum: {relaxed.message}; check the scale of the inputs"
        )
    solution = np.asarray(relaxed.x if conic is None else conic.x)
    first = data["param_prob"].var_id_to_col[weights.id]
    offset = float(data["param_prob"].q.toarray()[-1, -1])
    return solution[first : first + weights.size], float(relaxed.fun) + offset
