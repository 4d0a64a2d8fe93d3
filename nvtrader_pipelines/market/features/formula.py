"""Formulas over returns and changes of volume, as trees over a fixed list of operators."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BeforeValidator

from nvtrader_pipelines.components.component import Component, content_hash
from nvtrader_pipelines.components.explanation import format_value, suggest
from nvtrader_pipelines.components.text import ID_LENGTH
from nvtrader_pipelines.market.features.cross_section import centered_ranks
from nvtrader_pipelines.market.features.volatility import MIN_SHARE
from nvtrader_pipelines.market.history import LOOK_BACK, PriceHistory, apply_rolling, forward_fill, lag

FloatArray = NDArray[np.float64]
MAX_NODES, MAX_DEPTH, MAX_CONSTANT = 100, 12, 1e9
NO_VARIANCE = 1e-12  # as a share of the mean square: below, it is rounding
FIELDS: Mapping[str, str] = {  # of a formula, with the array of the price history
    "close_return": "closes",
    "overnight_return": "opens",
    "high_return": "highs",
    "low_return": "lows",
    "volume_change": "volumes",
}


class MissingFieldError(ValueError):
    """Field of a formula that the source does not have."""


class Operator(NamedTuple):
    """Function of inputs (T, N) and, where it has a least window, of a number of sessions."""

    compute: Callable[..., FloatArray]
    n_inputs: int = 1
    min_window: int = 0  # sessions; 0: it takes none
    is_lag: bool = False  # looks back the whole number of sessions, others one less
    is_cross_sectional: bool = False


def _log(values: FloatArray) -> FloatArray:
    return np.log(np.where(values > 0.0, values, np.nan))


def _log1p(values: FloatArray) -> FloatArray:
    return np.log1p(np.where(values > -1.0, values, np.nan))


def _divide(dividend: FloatArray, divisor: FloatArray) -> FloatArray:
    """Quotient; 0 where the divisor is 0."""
    return dividend * (divisor != 0.0) / np.where(divisor == 0.0, 1.0, divisor)


def _zscore(values: FloatArray) -> FloatArray:
    """Standard score (ddof 1) in each row; 0 in a row of equal values."""
    is_known = ~np.isnan(values)
    n_known = is_known.sum(axis=1, keepdims=True)
    centered = values - np.nansum(values, axis=1, keepdims=True) / np.maximum(n_known, 1)
    variance = np.nansum(centered**2, axis=1, keepdims=True) / np.maximum(n_known - 1, 1)
    square = np.nansum(values**2, axis=1, keepdims=True) / np.maximum(n_known, 1)
    return _divide(centered, np.where(variance > NO_VARIANCE * square, np.sqrt(variance), 0.0))


def _delay(values: FloatArray, n_sessions: int) -> FloatArray:
    """Last value that was known so many sessions before."""
    return lag(forward_fill(values), n_sessions)


def _delta(values: FloatArray, n_sessions: int) -> FloatArray:
    return values - _delay(values, n_sessions)


def _rolling(statistic: str) -> Callable[[FloatArray, int], FloatArray]:
    def compute(values: FloatArray, window: int) -> FloatArray:
        rolling = getattr(pl.all(), f"rolling_{statistic}")
        return apply_rolling(values, rolling(window, min_samples=_needed(window)))

    return compute


def _needed(window: int) -> int:
    return math.ceil(MIN_SHARE * window)


def _correlation(left: FloatArray, right: FloatArray, window: int) -> FloatArray:
    """Correlation over the window's sessions in which both are known; 0 where one of them did not vary."""
    is_known, mean = ~np.isnan(left * right), _rolling("mean")
    left, right = (np.where(is_known, values, np.nan) for values in (left, right))
    means, squares = ([mean(values**power, window) for values in (left, right)] for power in (1, 2))
    variances = [square - center**2 for square, center in zip(squares, means, strict=True)]
    varies = [variance > NO_VARIANCE * square for variance, square in zip(variances, squares, strict=True)]
    spread = np.sqrt(np.where(varies[0] & varies[1], variances[0] * variances[1], 0.0))
    return np.clip(_divide(mean(left * right, window) - means[0] * means[1], spread), -1.0, 1.0)


def _rank_in_window(values: FloatArray, window: int) -> FloatArray:
    """Rank of the last value of the window, from -1 (lowest) to 1; ties share their mean rank."""
    n_known, score = np.zeros((2, *values.shape))
    for age in range(window):  # one by one, since (T, N, window) may not fit in memory
        earlier = lag(values, age)
        n_known += ~np.isnan(earlier)
        score += np.where(earlier < values, 1.0, 0.0) - np.where(earlier > values, 1.0, 0.0)
    is_enough = (n_known >= _needed(window)) & ~np.isnan(values)
    return np.where(is_enough, score / np.maximum(n_known - 1.0, 1.0), np.nan)


def _decay_linear(values: FloatArray, window: int) -> FloatArray:
    """Mean of the window's known values with weights that fall by equal steps to the oldest."""
    n_known, total, weights = np.zeros((3, *values.shape))
    for age in range(window):
        earlier = lag(values, age)
        is_known = ~np.isnan(earlier)
        n_known += is_known
        weights += (window - age) * is_known
        total += (window - age) * np.where(is_known, earlier, 0.0)
    return np.where(n_known >= _needed(window), total / np.maximum(weights, 1.0), np.nan)


OPERATORS: Mapping[str, Operator] = {
    "add": Operator(np.add, 2),
    "sub": Operator(np.subtract, 2),
    "mul": Operator(np.multiply, 2),
    "div": Operator(_divide, 2),
    "neg": Operator(np.negative),
    "abs": Operator(np.abs),
    "sign": Operator(np.sign),
    "log": Operator(_log),
    "log1p": Operator(_log1p),
    "rank": Operator(centered_ranks, is_cross_sectional=True),
    "zscore": Operator(_zscore, is_cross_sectional=True),
    "delay": Operator(_delay, min_window=1, is_lag=True),
    "delta": Operator(_delta, min_window=1, is_lag=True),
    "ts_sum": Operator(_rolling("sum"), min_window=2),
    "ts_mean": Operator(_rolling("mean"), min_window=2),
    "ts_std": Operator(_rolling("std"), min_window=3),
    "ts_min": Operator(_rolling("min"), min_window=2),
    "ts_max": Operator(_rolling("max"), min_window=2),
    "ts_rank": Operator(_rank_in_window, min_window=2),
    "ts_corr": Operator(_correlation, 2, min_window=3),
    "decay_linear": Operator(_decay_linear, min_window=2),
}


def parse_formula(tree: Any) -> Any:
    """Check a formula, and return its lists as tuples and its constants as floats.

    Raises:
        ValueError: if it is too large, looks back too far or ahead, or has an unknown operator or field.
    """
    if not isinstance(tree, list | tuple):
        raise ValueError(f"must be a list of an operator and its inputs, but is {format_value(tree)}; write [rank, …]")
    _require_bounded(tree)
    parsed = _parse(tree)
    if (look_back := _look_back(parsed)) > LOOK_BACK:
        raise ValueError(
            f"must look back {LOOK_BACK} sessions at most, as every feature, but looks back {look_back}; shorten its "
            "windows"
        )
    return parsed


def _require_bounded(tree: Any) -> None:
    nodes, n_nodes = [tree], 0
    for _ in range(MAX_DEPTH):
        n_nodes += len(nodes)
        nodes = [part for node in nodes if isinstance(node, list | tuple) for part in node]
        if n_nodes + len(nodes) > MAX_NODES:
            raise ValueError(f"must have {MAX_NODES} parts at most, but has more; split it")
    if nodes:
        raise ValueError(f"must have {MAX_DEPTH} levels at most, but has more; simplify it")


def _parse(tree: Any) -> Any:
    match tree:
        case str():
            if tree not in FIELDS:
                raise ValueError(_unknown("field", tree, FIELDS))
            return tree
        case bool() | None:
            pass
        case int() | float() if abs(tree) <= MAX_CONSTANT:
            return float(tree)
        case [str(name), *arguments]:
            return _parse_call(name, arguments)
    raise ValueError(
        f"a part must be a field, a number up to {MAX_CONSTANT:.0e} or a list that begins with an operator, but is "
        f"{format_value(tree)}"
    )


def _parse_call(name: str, arguments: list[Any]) -> tuple[Any, ...]:
    if name not in OPERATORS:
        raise ValueError(_unknown("operator", name, OPERATORS))
    operator = OPERATORS[name]
    takes = f"{operator.n_inputs} input{'s' * (operator.n_inputs > 1)}" + " and a window" * bool(operator.min_window)
    if len(arguments) != operator.n_inputs + bool(operator.min_window):
        raise ValueError(f"{name} takes {takes}, but has {len(arguments)} arguments; write [{name}, …]")
    inputs, windows = arguments[: operator.n_inputs], arguments[operator.n_inputs :]
    for window in windows:
        if not isinstance(window, int) or isinstance(window, bool) or not operator.min_window <= window <= LOOK_BACK:
            raise ValueError(
                f"{name} needs a whole number of past sessions from {operator.min_window} to {LOOK_BACK}, since later "
                f"sessions are not known, but it is {format_value(window)}"
            )
    return (name, *map(_parse, inputs), *windows)


def _unknown(what: str, name: str, names: Mapping[str, Any]) -> str:
    near = suggest(name, [*names]) or ";"
    return f"there is no {what} {format_value(name)}{near} there are {', '.join(names)}"


def _own_look_back(operator: Operator, window: int) -> int:
    return window if operator.is_lag else window - 1


def _look_back(tree: Any) -> int:
    """Earlier sessions that the value of a parsed formula depends on; a return needs the close before it."""
    if not isinstance(tree, tuple):
        return int(isinstance(tree, str))
    operator = OPERATORS[tree[0]]
    of_operator = _own_look_back(operator, tree[-1]) if operator.min_window else 0
    return of_operator + max(map(_look_back, tree[1 : 1 + operator.n_inputs]))


FormulaTree = Annotated[tuple[Any, ...], BeforeValidator(parse_formula)]


class Formula(Component):
    """Formula over returns and changes of volume since the last known one, in lists of an operator and its inputs.

    Prices and volumes enter as changes only, so that no later adjustment for a split changes a value. Windows leave
    missing values out and need 80 % of them. Ranks run from -1 to 1, and ranks and z-scores are over the names that
    were listed for a year when the formula uses them. A division by 0 is 0, and a logarithm of no positive number
    unknown.

    Source: Kakushadze (2016), "101 Formulaic Alphas".
    """

    kind: Literal["formula"] = "formula"
    formula: FormulaTree = ("neg", ("ts_sum", ("log1p", "close_return"), 5))  # an operator, its inputs and its window

    @property
    def digest(self) -> str:
        """SHA-256 of the formula, as 64 hexadecimal digits."""
        return content_hash(self)

    @property
    def name(self) -> str:
        """Name of the feature's column, from the digest."""
        return f"formula_{self.digest[:ID_LENGTH]}"

    def values(self, history: PriceHistory) -> FloatArray:
        """Compute the feature at each session and symbol, (T, N).

        Raises:
            MissingFieldError: if the source lacks a field.
        """
        with np.errstate(all="ignore"):  # what is not finite is unknown
            values = _evaluate(self.formula, history, 0)
        return np.where(history.is_listed_for(_look_back(self.formula)), history.mask_unpriced(values), np.nan)


def _evaluate(tree: Any, history: PriceHistory, delay: int) -> FloatArray:
    """Compute a part (T, N) of which the rest of the formula uses values up to `delay` sessions old."""
    if isinstance(tree, str):
        return _field(tree, history)
    if not isinstance(tree, tuple):
        return np.full(history.closes.shape, tree)
    operator = OPERATORS[tree[0]]
    windows = tree[1 + operator.n_inputs :]
    used = delay + sum(_own_look_back(operator, window) for window in windows)
    inputs = [_evaluate(part, history, used) for part in tree[1 : 1 + operator.n_inputs]]
    if operator.is_cross_sectional:
        is_listed = history.is_listed_for(LOOK_BACK - delay) & history.has_price
        inputs = [np.where(is_listed, values, np.nan) for values in inputs]
    values = operator.compute(*inputs, *windows)
    return np.where(np.isfinite(values), values, np.nan)


def _field(name: str, history: PriceHistory) -> FloatArray:
    values = getattr(history, FIELDS[name])
    if np.isnan(values).all():
        raise MissingFieldError(
            f"the formula needs {FIELDS[name]}, but the source has none; deliver them, or drop {name}"
        )
    before = lag(forward_fill(values) if name == "volume_change" else history.last_closes(), 1)
    changes = values / before - 1.0
    return np.where(np.isfinite(changes), changes, np.nan)  # a volume may be 0
