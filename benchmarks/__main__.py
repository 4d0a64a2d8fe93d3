"""`python -m benchmarks`: measure all claims of speed, or the named ones."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from benchmarks.harness import INTERRUPTED, Benchmark, Outcome, find_benchmarks, measure, print_comment, summary
from benchmarks.machine import Machine

OK, FAILED, STOPPED = 0, 1, 130


def main(arguments: Sequence[str] | None = None, folder: Path = Path(__file__).parent / "claims") -> int:
    """Run benchmarks; exit code 0 unless one fails, even if a goal is missed."""
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measure every claim of speed.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; by default all")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and run none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures, with the machine, to a file")
    options = parser.parse_args(arguments)
    known = find_benchmarks(folder)
    unknown = [name for name in options.names if name not in {each.name for each in known}]
    if unknown:
        parser.error(_unknown_name_message(unknown[0], [each.name for each in known]))
    chosen = [each for each in known if each.name in options.names or not options.names]
    if options.list:
        sys.stdout.writelines(
            f"{each.name:<{max(len(each.name) for each in chosen)}}  {each.summary}\n" for each in chosen
        )
        return OK
    return _run(folder, chosen, options.json)


def _unknown_name_message(name: str, known: list[str]) -> str:
    nearest = get_close_matches(name, known, n=1)
    return f"no benchmark is named {name!r}; {f'did you mean {nearest[0]}?' if nearest else 'see --list'}"


def _run(folder: Path, chosen: Sequence[Benchmark], document: Path | None) -> int:
    began, machine, load = datetime.now(UTC), Machine.this(), os.getloadavg()
    print_comment(f"{began:%Y-%m-%d %H:%M} UTC\n{machine}\nload average: {' '.join(f'{each:.2f}' for each in load)}")
    outcomes: list[Outcome] = []
    for outcome in measure(folder, chosen):
        outcomes.append(outcome)
        if document:  # after each, so that an interrupted run leaves its figures
            whole = {"began_at": began.isoformat(timespec="seconds"), "load": load, "machine": asdict(machine)}
            whole["benchmarks"] = [asdict(each) for each in outcomes]
            document.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print_comment(summary(outcomes))
    if outcomes and outcomes[-1].error == INTERRUPTED:
        return STOPPED
    return FAILED if any(outcome.error for outcome in outcomes) else OK


if __name__ == "__main__":
    sys.exit(main())
