"""Changes of knobs that a proposer proposes, clipped to the bounds or refused."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import format_value, suggest
from nvtrader_pipelines.research.knobs import Knob, modes_of


class Adjustment(Component):
    """Value of a knob that is used in place of the proposed one."""

    knob: str
    proposed: int | float
    used: int | float


class BoundsClip(Adjustment):
    """Value out of bounds, clipped to the nearest bound."""


class Snapped(Adjustment):
    """Value that does not fit the others, lowered to the next that does."""


class DeltaRefused(ValueError):  # noqa: N818 - the field's word
    """A proposal is no delta of the space, or gives no valid experiment."""

    def __init__(self, problem: str, knobs: Sequence[Knob]) -> None:
        """State the problem, and the knobs that a proposal may change."""
        self.problem = problem
        self.knobs = tuple(knob.name for knob in knobs)
        end = " " if problem.endswith("?") else "; "
        super().__init__(f"{problem}{end}the knobs are {', '.join(self.knobs)}")


@dataclass(frozen=True)
class ConfigDelta:
    """Changes of knobs within their bounds; knobs that are left out keep the base's value."""

    values: Mapping[str, float] = field(default_factory=dict)  # by knob; an integer for a whole-number knob
    clips: tuple[BoundsClip, ...] = ()

    @classmethod
    def parse(cls, proposal: Any, knobs: Sequence[Knob]) -> "ConfigDelta":
        """Clip a proposal, which maps knobs to numbers, to the bounds.

        Raises:
            DeltaRefused: if it is no mapping, or names an unknown knob or a value of a wrong type.
        """
        if not isinstance(proposal, Mapping):
            raise DeltaRefused(f"a delta must map knobs to numbers, but is {format_value(proposal)}", knobs)
        by_name = {knob.name: knob for knob in knobs}
        for name in proposal:
            if name not in by_name:
                raise DeltaRefused(_unknown(name, list(by_name)), knobs)
        numbers = {name: _number(proposal[name], knob, knobs) for name, knob in by_name.items() if name in proposal}
        used = {name: by_name[name].clip(value) for name, value in numbers.items()}
        clips = [
            BoundsClip(knob=name, proposed=value, used=used[name])
            for name, value in numbers.items()
            if value != used[name]
        ]
        return cls(MappingProxyType(used), tuple(clips))


def _unknown(name: Any, names: Sequence[str]) -> str:
    if modes := modes_of(name):
        return f"this search does not vary {name}, a knob of mode {' and '.join(modes)}"
    return f"there is no knob {format_value(name)}{suggest(str(name), names)}"


def _number(value: Any, knob: Knob, knobs: Sequence[Knob]) -> float:
    """Value as a Python number; 64.0 becomes the integer 64 of a whole-number knob."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    number = (int(value) if isinstance(value, Integral) else float(value)) if is_number else math.nan
    is_finite = isinstance(number, int) or math.isfinite(number)
    if not is_finite or (knob.is_whole and number != int(number)):
        raise DeltaRefused(f"{knob.name} must be {knob.description}, but is {format_value(value)}", knobs)
    return int(number) if knob.is_whole else number
