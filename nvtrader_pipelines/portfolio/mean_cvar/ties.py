"""Ties: of all portfolios that reach the optimum, the one of the smallest norm."""

from dataclasses import replace
from typing import Any

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nvtrader_pipelines.portfolio.mean_cvar.cuts import Bounds, Inequalities, Master
from nvtrader_pipelines.portfolio.mean_cvar.problem_instance import ProblemInstance, tangent_at
from nvtrader_pipelines.portfolio.mean_cvar.solution import SMALL

FloatArray = NDArray[np.float64]
SOLVERS: Any = clarabel  # compiled, without types
MAX_CUTS = 50  # one or two suffice for duplicates and round returns
ROUNDING = 1e-10  # of an objective, relative
BINDING = 1e-7  # distance from a constraint that binds, by an interior point
FEASIBLE = 1e-9  # largest violation of a constraint, as of the simplex method


def break_ties(master: Master, instance: ProblemInstance, bounds: Bounds) -> Bounds:
    """Return the bounds with the optimal portfolio of the smallest Euclidean norm.

    Nothing changes if the linear program has a single optimum. Otherwise a quadratic program finds the smallest norm
    under its planes, at no worse an objective; where the planes were too low, one is added.
    """
    if master.has_one_optimum():
        return bounds
    for _ in range(MAX_CUTS):
        weights = _smallest_norm(master.inequalities(bounds.upper))
        if weights is None:
            break
        tangent = tangent_at(instance, weights)
        if tangent.objective <= bounds.upper + ROUNDING * max(abs(bounds.upper), SMALL):
            return replace(bounds, weights=weights, upper=tangent.objective)
        master.add(tangent)
    return bounds


def _smallest_norm(within: Inequalities) -> FloatArray | None:
    """Weights (N,) of the smallest norm in a polyhedron, by an interior point; None if it is too inexact."""
    lower, upper = within.lower, within.upper
    is_equal = lower == upper
    below, above = ~is_equal & np.isfinite(upper), ~is_equal & np.isfinite(lower)
    order = np.concatenate([np.flatnonzero(is_equal), np.flatnonzero(below), np.flatnonzero(above)])
    signs = np.where(np.arange(len(order)) < len(order) - int(above.sum()), 1.0, -1.0)
    rows = sparse.csc_matrix(sparse.diags_array(signs) @ within.matrix[order])
    bounds = np.concatenate([upper[is_equal], upper[below], -lower[above]])
    settings = SOLVERS.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    n_equal = int(is_equal.sum())
    cones = [SOLVERS.ZeroConeT(n_equal), SOLVERS.NonnegativeConeT(len(bounds) - n_equal)]
    norm = np.zeros(within.n_columns)
    norm[within.weights] = 1.0
    square = sparse.csc_matrix(sparse.diags_array(norm))
    solution = np.array(SOLVERS.DefaultSolver(square, np.zeros(len(norm)), rows, bounds, cones, settings).solve().x)
    if not np.isfinite(solution).all():
        return None
    for candidate in (_polish(solution, norm, rows, bounds, n_equal), solution):
        excess = rows @ candidate - bounds
        if max(excess.max(), -excess[:n_equal].min(initial=0.0)) <= FEASIBLE:
            return candidate[within.weights]
    return None


def _polish(solution: FloatArray, norm: FloatArray, rows: Any, bounds: FloatArray, n_equal: int) -> FloatArray:
    """Correct a solution so that the constraints that bind hold to rounding, by the conditions of optimality."""
    binds = (np.arange(len(bounds)) < n_equal) | (bounds - rows @ solution <= BINDING)
    active = rows[binds].toarray()
    n_columns, n_active = len(norm), len(active)
    system = np.zeros((n_columns + n_active,) * 2)
    system[:n_columns, :n_columns] = np.diag(norm)
    system[:n_columns, n_columns:] = active.T
    system[n_columns:, :n_columns] = active
    start = np.concatenate([solution, np.zeros(n_active)])
    residuals = np.concatenate([np.zeros(n_columns), bounds[binds]]) - system @ start
    return solution + np.asarray(np.linalg.lstsq(system, residuals)[0][:n_columns], dtype=np.float64)
