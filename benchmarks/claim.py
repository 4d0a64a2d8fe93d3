"""A claim of speed: a figure, what it is held against, and the line that says whether it holds."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

RESULTS = Path(__file__).parent / "results"


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
        name, bound = next((name, bound) for name, bound in asdict(self).items() if bound is not None)
        of = "x" if name.startswith("ratio") else ""
        return f"{'<=' if name.endswith('most') else '>='}{bound:g}{of}"

    def holds(self, value: float, ratio: float | None) -> bool:
        """Whether the bound is kept; a NaN never keeps it."""
        name, bound = next((name, bound) for name, bound in asdict(self).items() if bound is not None)
        found = ratio if name.startswith("ratio") else value
        if found is None:
            raise ValueError(f"the goal {self} is on a ratio, but none was measured")
        return found <= bound if name.endswith("most") else found >= bound


@dataclass(frozen=True)
class Figure:
    """One measured line."""

    name: str
    value: float
    unit: str
    ratio: float | None  # to what it is held against, in the same run
    goal: str
    ok: bool
    note: str

    def __str__(self) -> str:
        ratio = "-" if self.ratio is None else f"{self.ratio:.3g}"
        return f"{self.name} {self.value:.6g} {self.unit} {ratio} {self.goal} {'ok' if self.ok else 'short'}"


def report(name: str, value: float, unit: str, goal: Goal, *, ratio: float | None = None, note: str = "") -> Figure:
    """Print the line of a claim and keep it as JSON under `benchmarks/results`.

    Args:
        name: of the claim, without spaces.
        value: what was measured.
        unit: of the value, without spaces.
        goal: the bound it is held to.
        ratio: to what it is held against, measured in the same run.
        note: what a reader must know to believe it: sizes, peers' versions and settings.
    """
    figure = Figure(name, value, unit, ratio, str(goal), goal.holds(value, ratio), note)
    sys.stdout.write(f"{figure}\n")
    sys.stdout.flush()
    RESULTS.mkdir(exist_ok=True)
    kept = asdict(figure) | {"load": os.getloadavg()[0]}
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return figure


def rounds(contestants: Mapping[str, Callable[[int], object]], n_rounds: int) -> dict[str, list[float]]:
    """Seconds of wall clock of each contestant in each round, one after the other within it.

    Each is called with the number of the round, so that all meet the same inputs; one round more is run first and
    not counted, which loads and compiles whatever is lazy.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-1, n_rounds):
        for name, contestant in contestants.items():
            start = perf_counter()
            contestant(max(number, 0))
            if number >= 0:
                seconds[name].append(perf_counter() - start)
    return seconds


def ratio_of_medians(seconds: Mapping[str, list[float]], name: str, base: str) -> float:
    """How many times longer `name` takes than `base`: the median over the rounds of their ratio."""
    return median(theirs / ours for theirs, ours in zip(seconds[name], seconds[base], strict=True))
