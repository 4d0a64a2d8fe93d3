"""Search spaces of a person's own: a YAML file of dotted paths and bounds."""

from pathlib import Path
from typing import Self

from pydantic import model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.research.knobs import Knob, SearchMode
from nvtrader_pipelines.research.proposal_bounds import DeltaRefused
from nvtrader_pipelines.research.space import SearchSpace, numbers_of
from nvtrader_pipelines.storage.documents import read_document, validate_document
from nvtrader_pipelines.storage.errors import StorageError

PARTS = ("environment", "agent", "pipeline")  # the rest is the market and the judgement, equal for all trials


class KnobBounds(Component):
    """Bounds between which a number is searched, both included."""

    low: float
    high: float
    log: bool = False  # whether equal ratios count as equal steps

    @model_validator(mode="after")
    def _require_range(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low must be below high, but they are {self.low:g} and {self.high:g}; change one of them")
        if self.log and self.low <= 0.0:
            raise ValueError(f"low must be above 0 on a log scale, but is {self.low:g}; raise it, or leave log out")
        return self


Bounds = dict[str, KnobBounds]  # by dotted path


def read_space(path: Path, base: ExperimentSpec, mode: SearchMode) -> SearchSpace:
    """Read a space around an experiment from a file such as `agent.gamma: {low: 0.9, high: 0.99}`.

    Raises:
        StorageError: if a path leads to no number of the experiment, or bounds are no range that its field allows.
    """
    bounds = read_bounds(path)
    try:
        return bounded_space(bounds, base, mode)
    except ValueError as error:
        raise StorageError(f"{path.name}: {error}") from error


def read_bounds(path: Path) -> Bounds:
    """Read the bounds of a file by dotted path.

    Raises:
        StorageError: if it is empty, or bounds are no range.
    """
    content = read_document(path)
    if not content:
        raise StorageError(f"{path.name} must have at least one path with its bounds, but is empty; add one")
    return {
        str(name): validate_document(entry, KnobBounds, f"{path.name}: {name} has no valid bounds")
        for name, entry in content.items()
    }


def bounded_space(bounds: Bounds, base: ExperimentSpec, mode: SearchMode) -> SearchSpace:
    """Return the space of numbers of an experiment between bounds, by dotted path.

    Raises:
        ValueError: if a path leads to no number of the experiment, or its field does not allow a bound.
    """
    numbers = {name: value for name, value in numbers_of(base).items() if name.startswith(PARTS)}
    for name in bounds:
        if name not in numbers:
            raise ValueError(
                f"{name!r} must be the path of a number in {', '.join(PARTS[:-1])} or {PARTS[-1]} of {base.name}, such "
                f"as environment.vol_penalty{suggest(name, list(numbers))}"
            )
    knobs = [_knob(name, entry, is_whole=isinstance(numbers[name], int)) for name, entry in bounds.items()]
    space = SearchSpace.around(base, mode, knobs)
    for knob in knobs:
        for side, bound in (("low", knob.low), ("high", knob.high)):
            try:
                space.propose({knob.name: bound})
            except DeltaRefused as refusal:
                raise ValueError(f"{knob.name}: {side} is {bound:g}, but {refusal.problem}") from refusal
    return space


def _knob(name: str, bounds: KnobBounds, *, is_whole: bool) -> Knob:
    for side, bound in (("low", bounds.low), ("high", bounds.high)):
        if is_whole and not bound.is_integer():
            raise ValueError(f"{name} is a whole number, but {side} is {bound:g}; round it")
    return Knob(name, name.partition(".")[0], name, bounds.low, bounds.high, is_whole=is_whole, is_log=bounds.log)
