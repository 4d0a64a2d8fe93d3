"""A claim of speed: a figure, what it is held against, and the line that says whether it holds."""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal

from benchmarks.machine import Machine

RESULTS = Path(__file__).parent / "claims" / "results"
_missing: set[str] = set()  # peers that this process looked for in vain


@dataclass(frozen=True)
class Goal:
    """What a figure must reach: one bound, on the value or on the ratio."""

    value_at_most: float | None = None
    value_at_least: float | None = None
    ratio_at_most: float | None = None
    ratio_at_least: float | None = None

    def __post_init__(self) -> None:
        bounds = [bound for bound in asdict(self).values() if bound is not None]
        if len(bounds) != 1:
            raise ValueError(f"a goal must be exactly one bound, but {len(bounds)} were given; report each by itself")

    def __str__(self) -> str:
        name, bound = self._bound
        return f"{'<=' if name.endswith('most') else '>='}{bound:g}{'x' if self.on_ratio else ''}"

    @property
    def _bound(self) -> tuple[str, float]:
        return next((name, bound) for name, bound in asdict(self).items() if bound is not None)

    @property
    def on_ratio(self) -> bool:
        """Whether the bound is on the ratio, and not on the value."""
        return self._bound[0].startswith("ratio")

    def holds(self, value: float, ratio: float | None) -> bool:
        """Whether the bound is kept; a NaN never keeps it.

        Raises:
            ValueError: if the bound is on a ratio and none was measured.
        """
        name, bound = self._bound
        found = ratio if self.on_ratio else value
        if found is None:
            raise ValueError(f"the goal {self} is on a ratio, but none was measured; report the ratio to the peer")
        return found <= bound if name.endswith("most") else found >= bound


Verdict = Literal["ok", "short", "open"]


@dataclass(frozen=True)
class Figure:
    """One measured line."""

    name: str
    value: float
    unit: str
    ratio: float | None  # to what it is held against, in the same run
    goal: str
    ok: bool | None  # None where the peer to hold it against is not installed
    note: str

    def __str__(self) -> str:
        ratio = "-" if self.ratio is None else f"{self.ratio:.3g}"
        return f"{self.name} {self.value:.6g} {self.unit} {ratio} {self.goal} {self.verdict}"

    @property
    def verdict(self) -> Verdict:
        """Whether the goal is reached, missed, or left open for want of the peer."""
        if self.ok is None:
            return "open"
        return "ok" if self.ok else "short"


def import_peer(module: str) -> Any | None:
    """A peer's module to measure against; None, and a sentence that says so, where it is not installed.

    A goal on a ratio that is then reported without one is left open.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.partition(".")[0]:
            raise
    _missing.add(module)
    sys.stderr.write(f"{module} is not installed, so nothing is held against it; `make bench` installs it\n")
    return None


def report(name: str, value: float, unit: str, goal: Goal, *, ratio: float | None = None, note: str = "") -> Figure:
    """Print the line of a claim and keep it as JSON under `benchmarks/claims/results`.

    Args:
        name: of the claim, without spaces.
        value: what was measured.
        unit: of the value, without spaces.
        goal: the bound it is held to.
        ratio: to what it is held against, measured in the same run.
        note: what a reader must know to believe it: sizes, peers' versions and settings.

    Raises:
        ValueError: if the name is no file's name, the unit is not one word, the value or the ratio is not finite, or
            the goal is on a ratio that was not measured though no peer is missing.
    """
    if name.split() != [name] or "/" in name or unit.split() != [unit]:
        raise ValueError(f"a claim's name and unit must be one word each, but they are {name!r} and {unit!r}")
    value, ratio = float(value), None if ratio is None else float(ratio)
    if not all(math.isfinite(number) for number in (value, ratio) if number is not None):
        raise ValueError(f"{name} must be finite, but its value is {value} and its ratio {ratio}; measure it again")
    is_open = goal.on_ratio and ratio is None and bool(_missing)
    figure = Figure(name, value, unit, ratio, str(goal), None if is_open else bool(goal.holds(value, ratio)), note)
    sys.stdout.write(f"{figure}\n")
    sys.stdout.flush()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(_record(figure), indent=1) + "\n", encoding="utf-8")
    return figure


def _record(figure: Figure) -> dict[str, Any]:
    """A figure with where it comes from: the benchmark's module, when, under what load, on what machine."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return asdict(figure) | {
        "verdict": figure.verdict,
        "benchmark": spec.name.rpartition(".")[2] if spec else "",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": os.getloadavg()[0],
        "machine": asdict(Machine.this()),
    }


def time_rounds(
    implementations: Mapping[str, Callable[[int], object]], n_rounds: int, *, clock: Callable[[], float] = perf_counter
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, one after the other within it and every other round backwards.

    Each is called with the number of the round, so that all meet the same inputs; one round more is run first and
    not counted, which loads and compiles whatever is lazy.

    Args:
        implementations: name to what is timed.
        n_rounds: that count.
        clock: of the wall, or `time.process_time` for the processor's seconds of this process.
    """
    seconds: dict[str, list[float]] = {name: [] for name in implementations}
    for number in range(-1, n_rounds):
        order = list(implementations.items())
        for name, contestant in order if number % 2 == 0 else reversed(order):
            start = clock()
            contestant(max(number, 0))
            if number >= 0:
                seconds[name].append(clock() - start)
    return seconds


def median_ratio(seconds: Mapping[str, list[float]], name: str, base: str) -> float:
    """How many times longer `name` takes than `base`: the median over the rounds of their ratio."""
    return median(theirs / ours for theirs, ours in zip(seconds[name], seconds[base], strict=True))
