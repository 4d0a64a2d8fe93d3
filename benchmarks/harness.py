"""Runner of benchmarks, one after the other, each in a process of its own."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

INTERRUPTED = "interrupted"
SECONDS_TO_STOP = 2.0
MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


@dataclass(frozen=True)
class Benchmark:
    """Module with a `main` that reports figures."""

    name: str
    summary: str  # first line of its docstring


@dataclass
class Outcome:
    """Result of running a benchmark."""

    benchmark: str
    figures: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0  # of wall clock, with imports
    error: str | None = None  # its last line


def find_benchmarks(folder: Path) -> list[Benchmark]:
    """Modules of a folder with a `main`, by name; parsed, not imported, as peers may be missing."""
    found = []
    for path in sorted(folder.glob("[!_]*.py"), key=lambda path: _natural_key(path.stem)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found.append(Benchmark(path.stem, (ast.get_docstring(tree) or "").partition("\n")[0]))
    return found


def _natural_key(name: str) -> list[tuple[bool, int, str]]:
    """Sort key that puts 8 before 20."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def read_figures(folder: Path, benchmark: str | None = None) -> list[dict[str, Any]]:
    """Stored figures by time of measurement, of all benchmarks or of one."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in _result_files(folder)]
    own = [record for record in records if benchmark in (None, record["benchmark"])]
    return sorted(own, key=lambda record: record["measured_at"])


def _result_files(folder: Path) -> list[Path]:
    return sorted((folder / "results").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)


def measure(folder: Path, benchmarks: Sequence[Benchmark]) -> Iterator[Outcome]:
    """Run benchmarks one after the other; their lines go to standard output.

    Earlier figures of a benchmark are deleted when it starts. An interrupt or a termination ends the run with
    `interrupted` as the error of the last outcome.
    """
    for number, benchmark in enumerate(benchmarks, 1):
        print_comment(f"{number} of {len(benchmarks)}: {benchmark.name}: {benchmark.summary}")
        _delete_figures(folder, benchmark.name)
        outcome = Outcome(benchmark.name)
        start = perf_counter()
        try:
            outcome.error = _run(folder, benchmark.name)
        except KeyboardInterrupt:
            outcome.error = INTERRUPTED
        outcome.seconds = round(perf_counter() - start, 3)
        outcome.figures = read_figures(folder, benchmark.name)
        if outcome.error is None and not outcome.figures:
            outcome.error = "it reported no figure"
        if outcome.error:
            print_comment(f"{benchmark.name} failed after {outcome.seconds:.0f} s: {outcome.error}")
        yield outcome
        if outcome.error == INTERRUPTED:
            return


def _delete_figures(folder: Path, benchmark: str) -> None:
    for path in _result_files(folder):
        if json.loads(path.read_text(encoding="utf-8"))["benchmark"] == benchmark:
            path.unlink()


def _run(folder: Path, name: str) -> str | None:
    """Run a benchmark in a process; return the last line of its error, None on success."""
    root = next(each for each in folder.parents if not (each / "__init__.py").exists())
    command = [sys.executable, "-m", ".".join((*folder.relative_to(root).parts, name))]
    options: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "errors": "replace", "start_new_session": True}
    own = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=root, env=own, **options) as process:
        last = ""
        with _terminate_on_interrupt(process):
            for line in process.stderr or ():
                sys.stderr.write(line)
                last = line.strip() or last
            code = process.wait()
    if code == 0:
        return None
    missing = MISSING.match(last)
    remedy = f"; `make bench` installs the peers, perhaps {missing[1]} among them" if missing else ""
    return f"{last or f'exit code {code}'}{remedy}"


@contextmanager
def _terminate_on_interrupt(process: subprocess.Popen[str]) -> Iterator[None]:
    """On an interrupt or a signal, terminate the process group and raise `KeyboardInterrupt`."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Polars' handler of SIGINT would restart the read
    before = [signal.signal(each, signal.default_int_handler) for each in signals]
    try:
        yield
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def print_comment(text: str) -> None:
    """Print lines that are not figures."""
    sys.stdout.write("".join(f"# {line}\n" for line in text.splitlines()))
    sys.stdout.flush()


def summary(outcomes: Sequence[Outcome]) -> str:
    """Number of goals reached, benchmarks failed and seconds taken."""
    verdicts = [figure["verdict"] for outcome in outcomes for figure in outcome.figures]
    failed = sum(outcome.error is not None for outcome in outcomes)
    counts = {name: verdicts.count(name) for name in ("ok", "short", "open")}
    shown = [f"{count} {name}" for name, count in counts.items() if count or name != "open"]
    seconds = sum(outcome.seconds for outcome in outcomes)
    return f"{len(outcomes)} benchmarks in {seconds:.0f} s: {', '.join(shown)}, {failed} failed"
