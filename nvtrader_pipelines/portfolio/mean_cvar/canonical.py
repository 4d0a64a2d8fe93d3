"""Canonical linear program: fixed matrix, cost and bounds affine in the parameters."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nvtrader_pipelines.portfolio.mean_cvar.model import (
    FurtherConstraints,
    Model,
    ParameterValues,
    Structure,
    build_model,
    build_parameters,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Cost and bounds of a linear program; its matrix is in the canonical program."""

    cost: FloatArray  # (columns,)
    offset: float
    lower: FloatArray  # (columns,)
    upper: FloatArray
    row_lower: FloatArray  # (rows,)
    row_upper: FloatArray


@dataclass(frozen=True, eq=False)
class CanonicalProgram:
    """Compiled structure, in which rows with a single entry have become bounds of their column."""

    names: tuple[str, ...]  # parameters in the column order of the maps
    cost_map: sparse.csr_array  # (columns + 1, values + 1); last row: offset of the objective; last column: constants
    rhs_map: sparse.csr_array  # (all rows, values + 1)
    matrix: sparse.csc_array  # (rows, columns), rows that became bounds excluded
    rows: NDArray[np.int64]  # positions of the matrix rows among all rows
    n_equalities: int  # the first rows of the matrix
    bound_rows: NDArray[np.int64]  # positions of the bounds among all rows
    bound_columns: NDArray[np.int64]
    bound_entries: FloatArray
    weights: IntArray  # (N,) columns of the weights
    cvar: int  # column
    volatility: int  # column; -1 without a volatility penalty

    @cached_property
    def dense_matrix(self) -> FloatArray:
        """The matrix with its zeros."""
        return self.matrix.toarray()

    def stacked(self, values: ParameterValues) -> FloatArray:
        """Parameter values in the column order of the maps, and 1 for the constants."""
        return np.concatenate([*(np.ravel(values[name]) for name in self.names), [1.0]])

    def at(self, values: ParameterValues) -> LinearProgram:
        """Linear program at these parameter values."""
        stacked = self.stacked(values)
        cost, rhs = self.cost_map @ stacked, self.rhs_map @ stacked
        lower, upper = np.full(len(cost) - 1, -np.inf), np.full(len(cost) - 1, np.inf)
        bounds = rhs[self.bound_rows] / self.bound_entries
        above = self.bound_entries > 0.0
        np.minimum.at(upper, self.bound_columns[above], bounds[above])
        np.maximum.at(lower, self.bound_columns[~above], bounds[~above])
        row_upper = rhs[self.rows]
        row_lower = np.full(len(row_upper), -np.inf)
        row_lower[: self.n_equalities] = row_upper[: self.n_equalities]
        return LinearProgram(cost[:-1], float(cost[-1]), lower, upper, row_lower, row_upper)


@lru_cache(maxsize=64)
def compile_structure(structure: Structure) -> CanonicalProgram:
    """Compile a structure without further constraints, once per process."""
    compiled = compile_program(structure, None)
    if compiled is None:
        raise RuntimeError("a structure without further constraints must be linear")
    return compiled


def compile_program(structure: Structure, further: FurtherConstraints | None) -> CanonicalProgram | None:
    """Compile a structure with further constraints; None if they are second-order or integer.

    Raises:
        ValueError: if the further constraints hold parameters or are not linear, second-order or integer.
    """
    parameters = build_parameters(structure)
    model = build_model(structure, parameters, further)
    problem = model.problem
    _check_further_constraints(problem, set(parameters.values()))
    generator = np.random.default_rng(0)  # any values: the compiled program does not depend on them
    for parameter in parameters.values():
        parameter.value = generator.uniform(0.5, 1.0, parameter.shape)
    if problem.is_mixed_integer():
        _check_integer(problem, structure)
        return None
    data = problem.get_problem_data(cp.CLARABEL)[0]
    dims = data["dims"]
    if dims.exp or dims.psd or dims.p3d or dims.pnd:
        raise ValueError("further constraints must be linear, second-order or integer, but hold another cone; drop it")
    if dims.soc:
        return None
    return _canonicalize(model, parameters, data)


def _check_further_constraints(problem: cp.Problem, own: set[cp.Parameter]) -> None:
    foreign = [parameter.name() for parameter in problem.parameters() if parameter not in own]
    if foreign:
        raise ValueError(
            f"further constraints must not hold parameters, but hold {foreign}; write their values instead"
        )
    if not problem.is_dcp():
        raise ValueError("further constraints must be convex in the weights (cvxpy's DCP), but are not; rewrite them")
    if not problem.is_dpp():  # otherwise every solve would compile again, which is ten times slower
        raise ValueError("the model must be DPP, but is not; write further constraints with numbers only")


def _check_integer(problem: cp.Problem, structure: Structure) -> None:
    try:
        problem.get_problem_data(cp.HIGHS)
        linear = not structure.volatility
    except cp.SolverError:
        linear = False
    if not linear:
        raise ValueError("integer constraints need all others linear and no volatility penalty; drop one of them")


def _canonicalize(model: Model, parameters: dict[str, cp.Parameter], data: dict[str, Any]) -> CanonicalProgram:
    program, equalities = data["param_prob"], data["dims"].zero
    columns = program.var_id_to_col
    matrix = data["A"].tocsr()
    counts = np.diff(matrix.indptr)
    is_bound = (counts == 1) & (np.arange(len(counts)) >= equalities)
    bound_rows, rows = np.flatnonzero(is_bound), np.flatnonzero(~is_bound)
    bound_entries = matrix.indptr[bound_rows]
    first = columns[model.weights.id]
    compiled = CanonicalProgram(
        names=tuple(sorted(parameters, key=lambda name: program.param_id_to_col[parameters[name].id])),
        cost_map=sparse.csr_array(program.q),
        rhs_map=_rhs_map(program, matrix.shape),
        matrix=matrix[rows].tocsc(),
        rows=rows,
        n_equalities=equalities,
        bound_rows=bound_rows,
        bound_columns=matrix.indices[bound_entries].astype(np.int64),
        bound_entries=matrix.data[bound_entries],
        weights=np.arange(first, first + model.weights.size, dtype=np.int32),
        cvar=columns[model.cvar.id],
        volatility=columns.get(model.volatility.id, -1),
    )
    _check_maps(compiled, parameters, data)
    return compiled


def _rhs_map(program: Any, shape: tuple[int, int]) -> sparse.csr_array:
    """Map from parameters to right-hand sides, the last column of cvxpy's matrix."""
    indices, indptr, _ = program.reduced_A.problem_data_index
    entries = sparse.csr_array(program.reduced_A.reduced_mat)
    start, end = indptr[shape[1]], indptr[shape[1] + 1]
    to_rows = sparse.csr_array(
        (np.ones(end - start), (indices[start:end], np.arange(end - start))), (shape[0], end - start)
    )
    return sparse.csr_array(to_rows @ entries[start:end])


def _check_maps(compiled: CanonicalProgram, parameters: dict[str, cp.Parameter], data: dict[str, Any]) -> None:
    """Compare the maps with cvxpy's own result, since they read its undocumented layout."""
    stacked = compiled.stacked({name: np.asarray(parameter.value) for name, parameter in parameters.items()})
    close = np.allclose(compiled.rhs_map @ stacked, data["b"], rtol=0.0, atol=1e-12) and np.allclose(
        (compiled.cost_map @ stacked)[:-1], data["c"], rtol=0.0, atol=1e-12
    )
    entries = sparse.csr_array(data["param_prob"].reduced_A.reduced_mat)[: data["A"].nnz, :-1]
    if not close or entries.count_nonzero():
        raise RuntimeError("the layout of cvxpy's canonical programs has changed; pin its version")
