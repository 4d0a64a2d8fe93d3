"""Certified cutting planes on the canonical linear program, with in-out points."""

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nvtrader_pipelines.portfolio.mean_cvar.canonical import CanonicalProgram, LinearProgram
from nvtrader_pipelines.portfolio.mean_cvar.problem_instance import ProblemInstance, Tangent, tangent_at
from nvtrader_pipelines.portfolio.mean_cvar.solution import TOLERANCE, InfeasibleError, relative_gap
from nvtrader_pipelines.portfolio.mean_cvar.tableau import Tableau

FloatArray = NDArray[np.float64]
STABILITY = 0.7  # weight of the best portfolio in the next trial; 0 is Kelley's method, with twice as many iterations
LAST_STEPS_BELOW = 1e-6  # relative gap below which the vertices of the linear program are tried: an exact end
MAX_ITERATIONS = 1000
MIN_PATIENCE = 100  # iterations; even the smallest whole program takes as long as 80
PATIENCE_PER_ROOT = 5.0  # x sqrt(S); k cuts cost k^2 N, the whole program S N: as much at k = 4 to 7 sqrt(S), measured
STALLED_ABOVE = 1e-3  # gap at the end of the patience; from a smaller one the rest took less than as long again
VOLATILITY_PATIENCE = 150  # iterations in which a volatility's many curved directions are near the end, or far from it
MAX_TABLEAU_COLUMNS = 500  # half of HiGHS's time up to there, a tenth at 40, measured; memory grows with the square
SIMPLEX_TOLERANCE = 1e-9  # absolute, in the instance's unit


class MasterError(RuntimeError):
    """HiGHS found a linear program neither optimal nor infeasible."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Best portfolio found, its objective, and a lower bound of the optimum."""

    weights: FloatArray
    upper: float
    lower: float
    n_iterations: int


@dataclass(frozen=True, eq=False)
class Inequalities:
    """Polyhedron lower <= matrix @ x <= upper, in which some columns of x are the weights."""

    matrix: sparse.csr_array  # (rows, columns)
    lower: FloatArray  # (rows,)
    upper: FloatArray
    n_columns: int
    weights: NDArray[np.int32]  # (N,) columns


class Master:
    """Linear program below the objective; with each cut it restarts from the last basis.

    A small one is solved on a dense tableau, and by HiGHS if its solution there is inexact or does not exist.
    """

    def __init__(self, compiled: CanonicalProgram, program: LinearProgram) -> None:
        if (program.lower > program.upper + SIMPLEX_TOLERANCE).any():
            raise InfeasibleError("a floor exceeds a cap among the further constraints")
        self._compiled, self._program = compiled, program
        self._planes: list[tuple[NDArray[np.int32], FloatArray]] = []  # columns and entries of each
        self._tableau: Tableau | None = None

    @cached_property
    def _solver(self) -> highspy.Highs:
        """HiGHS, with the planes so far."""
        solver = highspy.Highs()
        solver.passOptions(_options())
        solver.passModel(_highs_program(self._compiled, self._program))
        for columns, entries in self._planes:
            solver.addRow(-highspy.kHighsInf, 0.0, len(columns), columns, entries)
        return solver

    def solve(self) -> tuple[FloatArray, float]:
        """Return the optimal weights (N,) and their objective.

        Raises:
            InfeasibleError: if no weights satisfy the constraints.
            MasterError: if HiGHS does not find the optimum.
        """
        optimum = None if self._tableau is None else self._tableau.solve()
        if optimum is not None:
            return optimum[0][self._compiled.weights], optimum[1] + self._program.offset
        self._tableau = None
        return self._solve_by_highs()

    def _solve_by_highs(self) -> tuple[FloatArray, float]:
        outcome = self._solver.run()
        status = self._solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            raise InfeasibleError("the constraints contradict each other")
        if outcome != highspy.HighsStatus.kOk or status != highspy.HighsModelStatus.kOptimal:
            raise MasterError(f"HiGHS ended with {outcome} and {self._solver.modelStatusToString(status)!r}")
        weights = np.array(self._solver.getSolution().col_value)[self._compiled.weights]
        return weights, self._solver.getObjectiveValue() + self._program.offset

    def has_one_optimum(self) -> bool:
        """Whether the last optimum is the only one: every column and row off the basis has a price."""
        if self._tableau is not None:
            return self._tableau.has_one_optimum
        solution, basis, program = self._solver.getSolution(), self._solver.getBasis(), self._solver.getLp()
        prices = np.abs([*solution.col_dual, *solution.row_dual])
        is_basic = np.array(
            [status == highspy.HighsBasisStatus.kBasic for status in (*basis.col_status, *basis.row_status)]
        )
        lower = np.array([*program.col_lower_, *program.row_lower_])
        is_fixed = lower == np.array([*program.col_upper_, *program.row_upper_])
        return bool((is_basic | is_fixed | (prices > SIMPLEX_TOLERANCE)).all())

    def inequalities(self, level: float) -> Inequalities:
        """Rows, bounds and planes of the linear program, and an objective of at most `level`."""
        program = self._solver.getLp()
        columns, entries = program.num_col_, program.a_matrix_
        by_row = entries.format_ == highspy.MatrixFormat.kRowwise
        matrix = (sparse.csr_array if by_row else sparse.csc_array)(
            (np.array(entries.value_), np.array(entries.index_), np.array(entries.start_)),
            shape=(program.num_row_, columns),
        )
        cost = sparse.csr_array(np.array(program.col_cost_)[None])
        return Inequalities(
            matrix=sparse.csr_array(sparse.vstack([matrix, sparse.eye_array(columns), cost])),
            lower=np.array([*program.row_lower_, *program.col_lower_, -np.inf]),
            upper=np.array([*program.row_upper_, *program.col_upper_, level - self._program.offset]),
            n_columns=columns,
            weights=self._compiled.weights,
        )

    def add(self, tangent: Tangent) -> None:
        """Bound CVaR and volatility from below by the planes of a tangent."""
        if not self._planes:
            self._tableau = self._start_tableau(tangent.cvar)
        self._add_plane(self._compiled.cvar, tangent.cvar)
        if tangent.volatility is not None:
            self._add_plane(self._compiled.volatility, tangent.volatility)

    def _start_tableau(self, gradient: FloatArray) -> Tableau | None:
        """Tableau without planes; None if it would be large, or no basis is known at which all costs are at bounds.

        The first plane and the bounds of the weights bound the CVaR from below.
        """
        program, weights = self._program, self._compiled.weights
        lower = program.lower.copy()
        corner = np.minimum(gradient * lower[weights], gradient * program.upper[weights]).sum()
        lower[self._compiled.cvar] = corner - 1.0  # never binds
        start = np.where(program.cost < 0.0, program.upper, lower)
        if len(start) > MAX_TABLEAU_COLUMNS or not np.isfinite(start).all():
            return None
        return Tableau(replace(program, lower=lower), self._compiled.dense_matrix)

    def _add_plane(self, column: int, gradient: FloatArray) -> None:
        columns, entries = np.append(self._compiled.weights, column).astype(np.int32), np.append(gradient, -1.0)
        self._planes.append((columns, entries))
        if "_solver" in vars(self):
            self._solver.addRow(-highspy.kHighsInf, 0.0, len(columns), columns, entries)
        if self._tableau is not None and self._tableau.is_full:
            self._tableau = None
        if self._tableau is not None:
            self._tableau.add(columns, entries)


def solve_by_cuts(master: Master, instance: ProblemInstance, start: FloatArray) -> Bounds:
    """Bound the optimum within the tolerance, or less tightly if the cuts stall.

    Each trial portfolio adds the tangents of its CVaR and volatility, so the linear program stays below the objective
    and its optimum is a lower bound. Trials lie between the best portfolio and that optimum. `start` (N,) may violate
    the constraints, since its tangents hold everywhere.

    Raises:
        InfeasibleError: if no weights satisfy the constraints.
        MasterError: if HiGHS does not find an optimum.

    Source: Kuenzi-Bay & Mayer (2006) for the cuts; Ben-Ameur & Neto (2007) for the in-out point.
    """
    master.add(tangent_at(instance, start))
    patience, stalled_above = _patience(instance)
    best, upper, lower = start, np.inf, -np.inf
    n_iterations = 0
    while n_iterations < MAX_ITERATIONS:
        n_iterations += 1
        outer, bound = master.solve()
        lower = max(lower, bound)
        gap = relative_gap(upper, lower)
        if n_iterations > patience and gap > stalled_above:
            break
        if gap <= TOLERANCE:  # bounds may have crossed; the caller checks by how much
            break
        inner = STABILITY if LAST_STEPS_BELOW <= gap < np.inf else 0.0
        tried = inner * best + (1.0 - inner) * outer
        tangent = tangent_at(instance, tried)
        if tangent.objective < upper:
            best, upper = tried, tangent.objective
        if relative_gap(upper, lower) <= TOLERANCE:
            break
        master.add(tangent)
    return Bounds(best, upper, lower, n_iterations)


def _patience(instance: ProblemInstance) -> tuple[float, float]:
    """Number of iterations after which the cuts stop, and the gap that must still be open then."""
    if instance.volatility_factor is not None:
        return VOLATILITY_PATIENCE, LAST_STEPS_BELOW
    return max(MIN_PATIENCE, PATIENCE_PER_ROOT * math.sqrt(len(instance.scenarios))), STALLED_ABOVE


@cache
def _options() -> highspy.HighsOptions:
    options = highspy.HighsOptions()  # `threads` unset: HiGHS fails if it differs from an earlier solve's
    options.output_flag = False
    options.presolve = "off"
    options.solver = "simplex"
    options.primal_feasibility_tolerance = SIMPLEX_TOLERANCE
    options.dual_feasibility_tolerance = SIMPLEX_TOLERANCE
    return options


def _highs_program(compiled: CanonicalProgram, program: LinearProgram) -> highspy.HighsLp:
    highs: Any = highspy.HighsLp()  # its stubs reject the arrays that it accepts
    highs.num_col_, highs.num_row_ = len(program.cost), len(program.row_upper)
    highs.col_cost_ = program.cost
    highs.col_lower_, highs.col_upper_ = program.lower, np.maximum(program.lower, program.upper)
    highs.row_lower_, highs.row_upper_ = program.row_lower, program.row_upper
    highs.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    highs.a_matrix_.start_ = compiled.matrix.indptr
    highs.a_matrix_.index_ = compiled.matrix.indices
    highs.a_matrix_.value_ = compiled.matrix.data
    return highs
