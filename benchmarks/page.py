"""`python -m benchmarks.page`: write the stored figures as tables to `docs/benchmarks.md`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Benchmark, find_benchmarks, read_figures
from benchmarks.machine import Machine, format_versions

FOLDER = Path(__file__).parent / "claims"
PAGE = FOLDER.parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HEAD = "| claim | value | unit | ratio | goal | | note |\n|---|--:|---|--:|--:|---|---|\n"


def write_page(page: Path, folder: Path) -> None:
    """Replace the text between the markers of a page by the stored figures.

    Raises:
        ValueError: if there are no figures, they come from several machines or versions of a library, or the page
            lacks a marker.
    """
    before, found_begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found_begin and found_end):
        raise ValueError(f"{page} needs the lines {BEGIN!r} and {END!r}, but lacks one; add them around the figures")
    pictures = page.parent / "images"
    text = render_figures(read_figures(folder), find_benchmarks(folder), pictures)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


def render_figures(figures: Sequence[dict[str, Any]], benchmarks: Sequence[Benchmark], pictures: Path) -> str:
    """Render the figures as Markdown: their conditions, then one table per benchmark.

    Figures of deleted benchmarks are omitted.
    """
    own = {each: [figure for figure in figures if figure["benchmark"] == each.name] for each in benchmarks}
    conditions = _conditions([figure for several in own.values() for figure in several])
    return "\n\n".join((conditions, *(_section(each, several, pictures) for each, several in own.items()))) + "\n"


def _conditions(figures: Sequence[dict[str, Any]]) -> str:
    """Time and machine of the figures."""
    if not figures:
        raise ValueError("the page needs figures, but none are stored; run `make bench`")
    machine = _machine(figures)
    days = sorted({figure["measured_at"][:10] for figure in figures})
    loads = [figure["load"] for figure in figures]
    verdicts = [figure["verdict"] for figure in figures]
    rows = {
        "measured": days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
        "commit": ", ".join(sorted({figure["commit"] for figure in figures})),
        "machine": f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib:g} GiB, {machine.system}",
        "load average": f"{min(loads):.1f} to {max(loads):.1f}, the benchmark's own share in it",
        "threads": f"`{machine.threads}`",
        "Python": machine.python,
        "libraries": format_versions(machine.libraries),
        "peers": format_versions(machine.peers),
        "goals": f"{verdicts.count('ok')} of {len(verdicts)} reached",
    }
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {_cell(text)} |" for name, text in rows.items())


def _machine(figures: Sequence[dict[str, Any]]) -> Machine:
    machine = figures[-1]["machine"]
    different = sorted({name for each in figures for name in machine if each["machine"].get(name) != machine[name]})
    if different:
        raise ValueError(
            "the figures must come from one machine with one set of libraries, but they differ in "
            f"{', '.join(different)}; run all of `make bench` again"
        )
    return Machine(**machine)


def _section(benchmark: Benchmark, figures: Sequence[dict[str, Any]], pictures: Path) -> str:
    picture = f"{benchmark.name.replace('_', '-')}.png"
    parts = [f"### `{benchmark.name}`", benchmark.summary]
    parts.append(HEAD + "\n".join(map(_row, figures)) if figures else "Not measured.")
    if (pictures / picture).exists():
        parts.append(f"![{benchmark.summary}](images/{picture})")
    return "\n\n".join(parts)


def _row(figure: dict[str, Any]) -> str:
    ratio = "" if figure["ratio"] is None else _number(figure["ratio"])
    verdict = figure["verdict"] if figure["verdict"] == "ok" else f"**{figure['verdict']}**"
    goal = figure["goal"].replace("<=", "≤ ").replace(">=", "≥ ")
    cells = (f"`{figure['name']}`", _number(figure["value"]), figure["unit"], ratio, goal, verdict, figure["note"])
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _number(value: float) -> str:
    """Format with three significant digits, or as a whole number from 1,000 on."""
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:.2e}" if abs(value) < 1 else f"{value:,.0f}"


if __name__ == "__main__":
    try:
        write_page(PAGE, FOLDER)
    except ValueError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{os.path.relpath(PAGE)}\n")
