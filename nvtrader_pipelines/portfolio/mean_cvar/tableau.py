"""Dual simplex method on a dense tableau, for linear programs that gain rows between solves."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.canonical import LinearProgram

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
FlagArray = NDArray[np.bool_]

TOLERANCE = 1e-9  # absolute: of bounds, prices and pivots
TIED = 1e-12  # ratios closer than this are ties; the largest pivot is chosen
MAX_PIVOTS = 1000  # in one solve; some ten are usual
MAX_ADDED = 500  # rows


class Tableau:
    """Linear program whose basis is kept from solve to solve.

    Variables are the columns, then the activities of the rows: each has bounds, and a row's activity is its variable.
    """

    def __init__(self, program: LinearProgram, matrix: FloatArray) -> None:
        """Start from the basis of the activities, with each column at the bound that its cost prefers."""
        n_rows, n_columns = matrix.shape
        self._cost, self._n_rows, self._n_solved = program.cost, n_rows, 0
        self._rows, self._tableau = np.empty((2, n_rows + MAX_ADDED, n_columns))
        self._rows[:n_rows] = matrix
        open_rows = np.full((2, MAX_ADDED), [[-np.inf], [0.0]])  # of added rows
        self._lower = np.concatenate([program.lower, program.row_lower, open_rows[0]])
        self._upper = np.concatenate([program.upper, program.row_upper, open_rows[1]])
        self._prices, self._basic = program.cost.copy(), n_columns + np.arange(n_rows + MAX_ADDED)
        self._nonbasic, self._is_upper = np.arange(n_columns), program.cost < 0.0
        self._values = np.where(self._is_upper, program.upper, program.lower)
        self._values = np.append(self._values, np.zeros(n_rows + MAX_ADDED))

    @property
    def is_full(self) -> bool:
        """Whether no further row can be added."""
        return self._n_rows == len(self._rows)

    def add(self, columns: NDArray[np.int32], entries: FloatArray) -> None:
        """Require entries @ x[columns] <= 0."""
        self._rows[self._n_rows] = 0.0
        self._rows[self._n_rows, columns] = entries
        self._n_rows += 1

    def solve(self) -> tuple[FloatArray, float] | None:
        """Return the optimal columns and a lower bound of the optimum; None if they are inexact or do not exist."""
        n_rows, n_columns = self._n_rows, len(self._cost)
        is_optimal = _pivot(
            self._tableau[:n_rows],
            self._rows[:n_rows],
            self._n_solved,
            self._lower,
            self._upper,
            self._values,
            self._prices,
            self._basic,
            self._nonbasic,
            self._is_upper,
        )
        self._n_solved = n_rows
        if not is_optimal:
            return None
        activities = self._values[n_columns : n_columns + n_rows]
        prices = np.zeros(n_columns + n_rows)
        prices[self._nonbasic] = self._prices
        residuals = self._cost - prices[:n_columns] - prices[n_columns:] @ self._rows[:n_rows]
        wrong_signs = np.where(self._is_fixed, 0.0, np.where(self._is_upper, self._prices, -self._prices))
        solution = self._values[:n_columns].copy()
        errors = np.abs(self._rows[:n_rows] @ solution - activities).max(), np.abs(residuals).max(), wrong_signs.max()
        return (solution, float(self._prices @ self._values[self._nonbasic])) if max(errors) <= TOLERANCE else None

    @property
    def has_one_optimum(self) -> bool:
        """Whether the last optimum is the only one: every variable off the basis has a price, or is fixed."""
        return bool((self._is_fixed | (np.abs(self._prices) > TOLERANCE)).all())

    @property
    def _is_fixed(self) -> FlagArray:
        return self._lower[self._nonbasic] == self._upper[self._nonbasic]


@njit(cache=True)
def _pivot(  # noqa: PLR0913 - flat arrays keep a compiled call cheap
    tableau: FloatArray,
    rows: FloatArray,
    n_solved: int,
    lower: FloatArray,
    upper: FloatArray,
    values: FloatArray,
    prices: FloatArray,
    basic: IntArray,
    nonbasic: IntArray,
    is_upper: FlagArray,
) -> bool:
    """Express new rows by the variables off the basis, and pivot until all values are in their bounds.

    Source: Koberstein (2005), section 3; variables whose ratios are passed move to their other bound on the way.
    """
    for row in range(n_solved, len(tableau)):
        _express(tableau, rows[row], row, basic, nonbasic)
    values[basic[: len(tableau)]] = 0.0
    for column in range(len(nonbasic)):
        at = values[nonbasic[column]]
        values[nonbasic[column]] = 0.0
        _move(tableau, column, float(at), values, basic, nonbasic)
    for _ in range(MAX_PIVOTS):
        leaving = _most_violated(len(tableau), lower, upper, values, basic)
        if leaving < 0:
            return True
        left = basic[leaving]
        rises = bool(values[left] < lower[left])
        target = lower[left] if rises else upper[left]
        while True:
            entering = _smallest_ratio(tableau[leaving], rises, lower, upper, prices, nonbasic, is_upper)
            if entering < 0:
                return False
            entered, slope = nonbasic[entering], tableau[leaving, entering]
            width = upper[entered] - lower[entered]
            if abs(slope) * width >= abs(target - values[left]):
                break
            _move(tableau, entering, float(-width if is_upper[entering] else width), values, basic, nonbasic)
            is_upper[entering] = not is_upper[entering]
        _move(tableau, entering, float((target - values[left]) / slope), values, basic, nonbasic)
        values[left] = target
        _exchange(tableau, leaving, entering, prices)
        basic[leaving], nonbasic[entering], is_upper[entering] = entered, left, not rises
    return False


@njit(cache=True)
def _express(tableau: FloatArray, entries: FloatArray, row: int, basic: IntArray, nonbasic: IntArray) -> None:
    """Write a row of the tableau: an activity by the variables off the basis."""
    n_columns = tableau.shape[1]
    for column in range(n_columns):
        tableau[row, column] = entries[nonbasic[column]] if nonbasic[column] < n_columns else 0.0
    for other in range(row):
        factor = entries[basic[other]] if basic[other] < n_columns else 0.0
        if factor != 0.0:
            for column in range(n_columns):
                tableau[row, column] += factor * tableau[other, column]


@njit(cache=True)
def _most_violated(n_rows: int, lower: FloatArray, upper: FloatArray, values: FloatArray, basic: IntArray) -> int:
    """Row of the variable farthest beyond its bounds; -1 if none is beyond."""
    leaving, worst = -1, TOLERANCE
    for row in range(n_rows):
        variable = basic[row]
        violation = max(lower[variable] - values[variable], values[variable] - upper[variable])
        if violation > worst:
            leaving, worst = row, violation
    return leaving


@njit(cache=True)
def _smallest_ratio(  # noqa: PLR0913 - as above
    slopes: FloatArray,
    rises: bool,  # noqa: FBT001 - compiled
    lower: FloatArray,
    upper: FloatArray,
    prices: FloatArray,
    nonbasic: IntArray,
    is_upper: FlagArray,
) -> int:
    """Variable off the basis whose price is the first to vanish as the leaving one goes to its bound; -1 if none is."""
    entering, least, largest = -1, np.inf, 0.0
    for column in range(len(slopes)):
        slope = slopes[column] if rises != is_upper[column] else -slopes[column]
        if slope <= TOLERANCE or lower[nonbasic[column]] == upper[nonbasic[column]]:
            continue
        ratio = abs(prices[column]) / slope
        if ratio < least - TIED or (ratio <= least + TIED and slope > largest):
            entering, least, largest = column, ratio, slope
    return entering


@njit(cache=True)
def _move(tableau: FloatArray, column: int, by: float, values: FloatArray, basic: IntArray, nonbasic: IntArray) -> None:
    """Change a variable off the basis, and those in it."""
    values[nonbasic[column]] += by
    for row in range(len(tableau)):
        values[basic[row]] += tableau[row, column] * by


@njit(cache=True)
def _exchange(tableau: FloatArray, leaving: int, entering: int, prices: FloatArray) -> None:
    """Pivot tableau and prices on an entry."""
    inverse = 1.0 / tableau[leaving, entering]
    for column in range(len(prices)):
        tableau[leaving, column] *= -inverse
    tableau[leaving, entering] = inverse
    for row in range(len(tableau)):
        factor = tableau[row, entering]
        if row != leaving and factor != 0.0:
            tableau[row, entering] = 0.0
            for column in range(len(prices)):
                tableau[row, column] += factor * tableau[leaving, column]
    factor = prices[entering]
    prices[entering] = 0.0
    for column in range(len(prices)):
        prices[column] += factor * tableau[leaving, column]
