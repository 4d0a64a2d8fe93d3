"""Use case as a function of an open home."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from nvtrader_pipelines.service.open_home import OpenHome

P = ParamSpec("P")
R = TypeVar("R")


class Family:
    """Operations of a home as methods."""

    def __init__(self, home: OpenHome) -> None:
        """Bind the operations to a home."""
        self.home = home


@dataclass(frozen=True)
class Operation(Generic[P, R]):
    """Use case; in a family, a method of the home."""

    function: Callable[Concatenate[OpenHome, P], R]

    def __call__(self, home: OpenHome, *args: P.args, **options: P.kwargs) -> R:
        """Work on a home."""
        return self.function(home, *args, **options)

    @overload
    def __get__(self, family: None, owner: type) -> "Operation[P, R]": ...
    @overload
    def __get__(self, family: Family, owner: type) -> Callable[P, R]: ...
    def __get__(self, family: Family | None, owner: type) -> Any:
        """Bind to the home of a family."""
        if family is None:
            return self

        @wraps(self.function)
        def method(*args: P.args, **options: P.kwargs) -> R:
            return self(family.home, *args, **options)

        signature = inspect.signature(self.function)
        method.__signature__ = signature.replace(  # pyright: ignore[reportAttributeAccessIssue] - `help` shows it
            parameters=[*signature.parameters.values()][1:]
        )
        return method


def operation(function: Callable[Concatenate[OpenHome, P], R]) -> Operation[P, R]:
    """Make a use case of a function."""
    return Operation(function)
