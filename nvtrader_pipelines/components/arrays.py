"""Arrays of callers: from lists, pandas and polars, never against the labels that these carry."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
AXES = ("index", "columns")


class LabelError(ValueError):
    """Labels of rows or columns that do not fit the names, or those of another argument."""


def labels_of(values: object, axis: int) -> list[str] | None:
    """Labels of the rows (axis 0) or columns (axis 1) of a pandas or polars object; None if these only count.

    Those of the columns of a list are those of its Series.

    Raises:
        LabelError: if the Series of a list differ in theirs.
    """
    if isinstance(values, list | tuple):
        of_items = {tuple(labels_of(value, 0) or ()) for value in values} if axis else {()}
        if len(of_items) > 1:
            raise LabelError(
                "a list of Series must have the same labels in each, one by one, but differs; make a frame"
            )
        return list(of_items.pop()) or None if of_items else None
    labels = getattr(values, AXES[axis], None)
    if labels is None or callable(labels):  # a list has a method `index`
        return None
    texts = [str(label) for label in labels]
    counted = ([f"{prefix}{i}" for i in range(len(texts))] for prefix in ("", "column_"))
    return None if texts in counted else texts


def order_by_names(values: Any, names: Sequence[str], what: str, axis: int = 0) -> Any:
    """Return values as an array, those with labels in the order of the names; None and numbers as they are.

    Raises:
        LabelError: if the labels of the axis are not the names.
    """
    if values is None or isinstance(values, np.ndarray | float | int):
        return values
    labels = labels_of(values, axis)
    if labels is None:
        return np.asarray(values, dtype=np.float64)
    if sorted(labels) != sorted(names):
        wrong = sorted(set(labels) ^ set(names)) or labels
        raise LabelError(
            f"the {AXES[axis]} of {what} must be the {len(names)} names {', '.join(names[:3])}, …, but {len(labels)} "
            f"labels differ from them, first {wrong[0]}; name each once, or pass an array in their order"
        )
    return np.take(np.asarray(values, dtype=np.float64), [labels.index(name) for name in names], axis)


def without_labels(values: Any, what: str) -> Any:
    """Return values as an array.

    Raises:
        LabelError: if they have labels, which a position would ignore.
    """
    if values is None or isinstance(values, np.ndarray):
        return values
    labels = labels_of(values, 0) or labels_of(values, 1)
    if labels:
        raise LabelError(
            f"{what} must be an array in the order of the market's names, cash last, but has labels, first "
            f"{labels[0]}; put it in that order and pass its `.to_numpy()`"
        )
    return np.asarray(values, dtype=np.float64)


def takes_arrays(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function of arrays take lists, pandas and polars; labels of several arguments must agree."""
    parameters = signature(function).parameters.values()
    arrays = [
        parameter.name if FloatArray in (parameter.annotation, *get_args(parameter.annotation)) else ""
        for parameter in parameters
    ]

    @wraps(function)
    def converted(*args: Any, **kwargs: Any) -> Result:
        named = {**dict(zip(arrays, args, strict=False)), **kwargs}
        given = {name: named[name] for name in arrays if name and not _is_ready(named.get(name))}
        if given:
            _require_equal_labels(given)
            # a frame is stored by columns, and sums round by memory layout
            named.update({name: np.ascontiguousarray(value, dtype=np.float64) for name, value in given.items()})
            args = tuple(named[name] if name else value for name, value in zip(arrays, args, strict=False))
            kwargs = {name: named[name] for name in kwargs}
        return function(*args, **kwargs)

    return converted


def _is_ready(values: object) -> bool:
    """Whether values need no conversion; arrays of other numbers do, as rounding of float32 would count."""
    return values is None or (isinstance(values, np.ndarray) and values.dtype == np.float64)


def _require_equal_labels(given: dict[str, Any]) -> None:
    for axis in (0, 1):
        labels = {name: found for name, value in given.items() if (found := labels_of(value, axis)) is not None}
        (first, *others) = labels or [""]
        for other in others:
            if labels[other] != labels[first]:
                raise LabelError(
                    f"{first} and {other} must have the same {AXES[axis]}, label by label, but differ; align them, or "
                    "pass arrays in one order"
                )
