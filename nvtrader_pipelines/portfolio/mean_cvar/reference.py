"""The whole Rockafellar-Uryasev program in cvxpy: the reference of the fast path, and its fallback."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from nvtrader_pipelines.portfolio.mean_cvar.cuts import Bounds
from nvtrader_pipelines.portfolio.mean_cvar.market import Market, tangent_at
from nvtrader_pipelines.portfolio.mean_cvar.model import Further, Model, Numbers, Structure, model_of
from nvtrader_pipelines.portfolio.mean_cvar.solution import TOLERANCE, InfeasibleError, UncertifiedError, relative_gap

FloatArray = NDArray[np.float64]
CONIC_OPTIONS = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
LINEAR_OPTIONS = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
CLOSING_ROUNDS = 20
INFEASIBLE = frozenset({cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE})
INTEGER_OPTIONS = LINEAR_OPTIONS | {"mip_feasibility_tolerance": 1e-9, "mip_rel_gap": 1e-8, "mip_abs_gap": 1e-10}


@dataclass(frozen=True, eq=False)
class Program:
    """A whole program and the parts of it that are read after a solve."""

    problem: cp.Problem
    weights: cp.Variable  # (N,)
    excesses: cp.Constraint  # one for each scenario, whose multipliers are its part in the tail


def whole_program(structure: Structure, further: Further | None, numbers: Numbers, market: Market) -> Program:
    """The program with the level and the excess of each scenario as variables, in units of the market.

    cvxpy's own cvar and sum_largest fail once the weights have a value (1.9.3), so neither is used.

    Source: Rockafellar & Uryasev (2000), equation 17.
    """
    model = _model(structure, further, numbers)
    returns = market.scenarios * market.risk
    level, excess = cp.Variable(), cp.Variable(len(returns), nonneg=True)
    excesses = excess + level + returns @ model.weights >= 0.0
    constraints = [*model.constraints, excesses, model.cvar >= level + cp.sum(excess) / market.tail_size]
    if market.volatility_factor is not None:
        constraints.append(model.volatility >= cp.norm(market.volatility_factor.T @ model.weights))
    return Program(cp.Problem(cp.Minimize(model.objective), constraints), model.weights, excesses)


def least_turnover(structure: Structure, further: Further | None, numbers: Numbers) -> float | None:
    """One-way turnover that reaches all other constraints from the current weights; None if nothing reaches them."""
    model = _model(replace(structure, turnover=False), further, numbers)
    problem = cp.Problem(cp.Minimize(model.turnover), model.constraints)
    _solve(problem)
    return None if problem.status in INFEASIBLE else _value(problem)


def solve_whole(structure: Structure, further: Further | None, numbers: Numbers, market: Market) -> Bounds:
    """Bounds of the optimum from the whole program.

    The upper bound is the objective recomputed at the solver's weights. The lower bound trusts no solver status:
    the multipliers of the scenarios, made a probability below 1 / tail size, give a plane below the CVaR; under that
    plane what remains is a small program without scenarios, whose optimum is bounded by a linear program (see
    `_relaxed`). Solvers leave a gap of 1e-8 or so, which tangents at the small program's own weights close. With
    integer constraints the lower bound is HiGHS's own, of its branch and bound.

    Raises:
        InfeasibleError: if no weights keep the constraints.
        UncertifiedError: if the solver gives no weights.
    """
    program = whole_program(structure, further, numbers, market)
    problem = program.problem
    _solve(problem)
    if problem.status in INFEASIBLE:
        raise InfeasibleError("the constraints contradict each other")
    if program.weights.value is None:
        raise UncertifiedError(f"the solver ended with {problem.status!r} and without weights; check the constraints")
    weights = np.asarray(program.weights.value)
    stats = cast("Any", problem.solver_stats)
    found = Bounds(weights, tangent_at(market, weights).objective, -np.inf, int(stats.num_iters or 0))
    if problem.is_mixed_integer():
        info = stats.extra_stats
        return replace(found, lower=_value(problem) + info.mip_dual_bound - info.objective_function_value)
    parts = np.asarray(program.excesses.dual_value)
    return _closed(_model(structure, further, numbers), market, found, _probability(parts, 1.0 / market.tail_size))


def _value(problem: cp.Problem) -> float:
    return float(cast("float", problem.value))


def _model(structure: Structure, further: Further | None, numbers: Numbers) -> Model:
    return model_of(structure, {name: cp.Constant(value) for name, value in numbers.items()}, further)


def _solve(problem: cp.Problem) -> None:
    """Solve with HiGHS what it holds, and with Clarabel what has cones."""
    with _inaccuracy_allowed():
        try:
            if problem.is_mixed_integer():
                problem.solve(solver=cp.HIGHS, **INTEGER_OPTIONS)
            elif problem.is_lp():
                problem.solve(solver=cp.HIGHS, **LINEAR_OPTIONS)
            else:
                problem.solve(solver=cp.CLARABEL, **CONIC_OPTIONS)
        except cp.SolverError as failure:
            raise UncertifiedError(f"no solver solved the program: {failure}; check the constraints") from failure


@contextmanager
def _inaccuracy_allowed() -> Iterator[None]:
    """A solver's doubt is no warning here: the recomputed bounds decide."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        yield


def _closed(model: Model, market: Market, found: Bounds, probability: FloatArray) -> Bounds:
    """Bounds whose gap is closed by planes below CVaR and volatility, where it can be."""
    planes: list[Any] = [model.cvar >= -market.risk * (market.scenarios.T @ probability) @ model.weights]
    tried = found.weights
    for _ in range(CLOSING_ROUNDS):
        tangent = tangent_at(market, tried)
        if tangent.objective < found.upper:
            found = replace(found, weights=tried, upper=tangent.objective)
        if relative_gap(found.upper, found.lower) <= TOLERANCE:
            break
        planes.append(model.cvar >= tangent.cvar @ model.weights)
        if tangent.volatility is not None:
            planes.append(model.volatility >= tangent.volatility @ model.weights)
        problem = cp.Problem(cp.Minimize(model.objective), [*model.constraints, *planes])
        tried, lower = _relaxed(problem, model.weights)
        found = replace(found, lower=max(found.lower, lower))
    return found


def _probability(parts: FloatArray, largest: float) -> FloatArray:
    """The nearest multiples of `parts` (S,) that lie between 0 and `largest` and sum to 1."""
    inside = np.clip(parts, 0.0, largest)
    room = largest - inside
    missing = 1.0 - inside.sum()
    return inside + missing * room / room.sum() if missing > 0.0 else inside / inside.sum()


def _relaxed(problem: cp.Problem, weights: cp.Variable) -> tuple[FloatArray, float]:
    """Weights (N,) that solve a linear or second-order program, and a lower bound of it by a linear one.

    For each cone Clarabel's multiplier, moved into the dual cone, turns the cone into one linear inequality that all
    its points keep; with exact multipliers the bound is exact, with any others it is still a bound.
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
            f"the bound's linear program must have an optimum, but {relaxed.message}; check the scales"
        )
    solution = np.asarray(relaxed.x if conic is None else conic.x)
    first = data["param_prob"].var_id_to_col[weights.id]
    offset = float(data["param_prob"].q.toarray()[-1, -1])
    return solution[first : first + weights.size], float(relaxed.fun) + offset
