"""Certified cutting planes on the canonical linear program, with in-out points."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nvtrader_pipelines.portfolio.mean_cvar.canonical import CanonicalProgram, LinearProgram
from nvtrader_pipelines.portfolio.mean_cvar.problem_instance import ProblemInstance, Tangent, tangent_at
from nvtrader_pipelines.portfolio.mean_cvar.solution import TOLERANCE, InfeasibleError, relative_gap

FloatArray = NDArray[np.float64]
STABILITY = 0.7  # weight of the best portfolio in the next trial; 0 is Kelley's method, with twice as many iterations
LAST_STEPS_BELOW = 1e-6  # relative gap below which the vertices of the linear program are tried: an exact end
MAX_ITERATIONS = 1000
MIN_PATIENCE = 100  # iterations; even the smallest whole program takes as long as 80
PATIENCE_PER_ROOT = 5.0  # x sqrt(S); k cuts cost k^2 N, the whole program S N: as much at k = 4 to 7 sqrt(S), measured
STALLED_ABOVE = 1e-3  # gap at the end of the patience; from a smaller one the rest took less than as long again
VOLATILITY_PATIENCE = 150  # iterations in which a volatility's many curved directions are near the end, or far from it
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
    """Linear program below the objective; with each cut HiGHS restarts from the last basis."""

    def __init__(self, compiled: CanonicalProgram, program: LinearProgram) -> None:
        if (program.lower > program.upper + SIMPLEX_TOLERANCE).any():
            raise InfeasibleError("a floor exceeds a cap among the further constraints")
        self._compiled, self._offset = compiled, program.offset
        self._solver = highspy.Highs()
        self._solver.passOptions(_options())
        self._solver.passModel(_highs_program(compiled, program))
        self._cvar_columns = np.append(compiled.weights, compiled.cvar).astype(np.int32)
        self._volatility_columns = np.append(compiled.weights, compiled.volatility).astype(np.int32)

    def solve(self) -> tuple[FloatArray, float]:
        """Return the optimal weights (N,) and their objective.

        Raises:
            InfeasibleError: if no weights satisfy the constraints.
            MasterError: if HiGHS does not find the optimum.
        """
        outcome = self._solver.run()
        status = self._solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            raise InfeasibleError("the constraints contradict each other")
        if outcome != highspy.HighsStatus.kOk or status != highspy.HighsModelStatus.kOptimal:
            raise MasterError(f"HiGHS ended with {outcome} and {self._solver.modelStatusToString(status)!r}")
        weights = np.array(self._solver.getSolution().col_value)[self._compiled.weights]
        return weights, self._solver.getObjectiveValue() + self._offset

    def has_one_optimum(self) -> bool:
        """Whether the last optimum is the only one: every column and row off the basis has a price."""
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
            upper=np.array([*program.row_upper_, *program.col_upper_, level - self._offset]),
            n_columns=columns,
            weights=self._compiled.weights,
        )

    def add(self, tangent: Tangent) -> None:
        """Bound CVaR and volatility from below by the planes of a tangent."""
        self._add_row(self._cvar_columns, tangent.cvar)
        if tangent.volatility is not None:
            self._add_row(self._volatility_columns, tangent.volatility)

    def _add_row(self, columns: NDArray[np.int32], gradient: FloatArray) -> None:
        self._solver.addRow(-highspy.kHighsInf, 0.0, len(columns), columns, np.append(gradient, -1.0))


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
