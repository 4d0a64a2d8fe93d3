"""A run as a person follows it: a live bar on a terminal, a line now and then elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from nvtrader_pipelines.experiments.progress import Progress as Step

PARTS = 10  # lines of a run where there is no terminal
Watch = Callable[[Step], None]


@contextmanager
def watching(console: Console, *, quiet: bool = False) -> Iterator[Watch]:
    """What takes each step of a run and shows how far it is; nothing at all if `quiet`."""
    if quiet:
        yield lambda _: None
    elif console.is_terminal:
        with _bar(console) as bar:
            yield _Bar(bar)
    else:
        yield _Lines(console)


def follow(steps: Iterable[Step], watch: Watch) -> str:
    """Run to the end, showing each step; the id of the run."""
    run_id = ""
    for step in steps:
        watch(step)
        run_id = step.run_id
    return run_id


def _bar(console: Console) -> Progress:
    return Progress(
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
    )


class _Bar:
    """One bar per run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks = {}

    def __call__(self, step: Step) -> None:
        """Move the run's bar."""
        if step.run_id not in self._tasks:
            self._tasks[step.run_id] = self._progress.add_task(step.message, total=1.0)
        task = self._tasks[step.run_id]
        self._progress.update(task, description=step.message)
        if step.share is not None:
            self._progress.update(task, completed=step.share)
        if step.stage in ("done", "error"):
            self._progress.remove_task(self._tasks.pop(step.run_id))
            self._progress.console.print(step.message, markup=False, highlight=False)


class _Lines:
    """A line where a run begins, ends, and comes to another tenth."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._parts: dict[str, int] = {}

    def __call__(self, step: Step) -> None:
        """Write a line, if it is time for one."""
        part = int(PARTS * (step.share or 0.0))
        if step.stage in ("start", "done", "error") or part > self._parts.get(step.run_id, 0):
            self._parts[step.run_id] = part
            self._console.print(
                f"{step.timestamp:%H:%M:%S} {step.stage}: {step.message}", markup=False, highlight=False, soft_wrap=True
            )
