"""Claim of speed: a figure, its goal and the line that reports them."""

import json
import math
import os
import subprocess
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
_missing: set[str] = set()  # peers that are not installed


@dataclass(frozen=True)
class Goal:
    """Goal of a figure: one bound, on its value or on its ratio."""

    value_at_most: float | None = None
    value_at_least: float | None = None
    ratio_at_most: float | None = None
    ratio_at_least: float | None = None

    def __post_init__(self) -> None:
        bounds = [bound for bound in asdict(self).values() if bound is not None]
        if len(bounds) != 1:
            raise ValueError(f"a goal is exactly one bound, but {len(bounds)} were given")

    def __str__(self) -> str:
        name, bound = self._bound
        return f"{'<=' if name.endswith('most') else '>='}{bound:g}{'x' if self.on_ratio else ''}"

    @property
    def _bound(self) -> tuple[str, float]:
        return next((name, bound) for name, bound in asdict(self).items() if bound is not None)

    @property
    def on_ratio(self) -> bool:
        """Whether the bound is on the ratio rather than on the value."""
        return self._bound[0].startswith("ratio")

    def holds(self, value: float, ratio: float | None) -> bool:
        """Whether a figure meets the bound; NaN never does.

        Raises:
            ValueError: if the bound is on a ratio and none was measured.
        """
        name, bound = self._bound
        found = ratio if self.on_ratio else value
        if found is None:
            raise ValueError(f"the goal {self} needs a ratio, but none was reported")
        return found <= bound if name.endswith("most") else found >= bound


Verdict = Literal["ok", "short", "open"]


@dataclass(frozen=True)
class Figure:
    """Measured figure, one line of output."""

    name: str
    value: float
    unit: str
    ratio: float | None  # to the reference, in the same run
    goal: str
    ok: bool | None  # None if the peer is not installed
    note: str

    def __str__(self) -> str:
        ratio = "-" if self.ratio is None else f"{self.ratio:.3g}"
        return f"{self.name} {self.value:.6g} {self.unit} {ratio} {self.goal} {self.verdict}"

    @property
    def verdict(self) -> Verdict:
        """Whether the goal is reached, missed, or open because the peer is missing."""
        if self.ok is None:
            return "open"
        return "ok" if self.ok else "short"


def import_peer(module: str) -> Any | None:
    """Import a peer's module; without it, write a note and return None.

    A goal on a ratio to a missing peer is left open.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.partition(".")[0]:
            raise
    _missing.add(module)
    sys.stderr.write(f"{module} is not installed, so its goals are left open; `make bench` installs it\n")
    return None


def report(name: str, value: float, unit: str, goal: Goal, *, ratio: float | None = None, note: str = "") -> Figure:
    """Print the line of a claim and store it as JSON under `benchmarks/claims/results`.

    Args:
        name: name of the claim, without spaces.
        value: measured value.
        unit: unit of the value, without spaces.
        goal: bound on the value or on the ratio.
        ratio: ratio to the reference, measured in the same run.
        note: conditions a reader must know: sizes, versions and settings of the peers.

    Raises:
        ValueError: if the name is not a file name, the unit is not one word, the value or the ratio is not finite, or
            the goal needs a ratio that was not reported although no peer is missing.
    """
    if name.split() != [name] or "/" in name or unit.split() != [unit]:
        raise ValueError(f"a claim's name and unit are one word each, not {name!r} and {unit!r}")
    value, ratio = float(value), None if ratio is None else float(ratio)
    if not all(math.isfinite(number) for number in (value, ratio) if number is not None):
        raise ValueError(f"{name} is not finite: value {value}, ratio {ratio}")
    is_open = goal.on_ratio and ratio is None and bool(_missing)
    figure = Figure(name, value, unit, ratio, str(goal), None if is_open else bool(goal.holds(value, ratio)), note)
    sys.stdout.write(f"{figure}\n")
    sys.stdout.flush()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(_record(figure), indent=1) + "\n", encoding="utf-8")
    return figure


def _record(figure: Figure) -> dict[str, Any]:
    """Figure with its benchmark, time, load, commit and machine."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return asdict(figure) | {
        "verdict": figure.verdict,
        "benchmark": spec.name.rpartition(".")[2] if spec else "",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": os.getloadavg()[0],
        "commit": _commit(),
        "machine": asdict(Machine.this()),
    }


def _commit() -> str:
    """Commit of the measured code; empty outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def time_rounds(
    implementations: Mapping[str, Callable[[int], object]], n_rounds: int, *, clock: Callable[[], float] = perf_counter
) -> dict[str, list[float]]:
    """Seconds of each implementation per round, in an order that alternates by round.

    Each is called with the number of the round, so that all have the same inputs. An extra first round, which is not
    counted, loads and compiles what is lazy.

    Args:
        implementations: timed function by name.
        n_rounds: number of counted rounds.
        clock: wall clock, or `time.process_time` for CPU seconds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in implementations}
    for number in range(-1, n_rounds):
        order = list(implementations.items())
        for name, run in order if number % 2 == 0 else reversed(order):
            start = clock()
            run(max(number, 0))
            if number >= 0:
                seconds[name].append(clock() - start)
    return seconds


def median_ratio(seconds: Mapping[str, list[float]], name: str, base: str) -> float:
    """Median over the rounds of how many times longer `name` takes than `base`."""
    return median(numerator / denominator for numerator, denominator in zip(seconds[name], seconds[base], strict=True))
