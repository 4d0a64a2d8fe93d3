"""Progress of runs: a live bar on a terminal, lines elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from nvtrader_pipelines.experiments.progress import Progress as Step
from nvtrader_pipelines.service.consoles import plain_console

N_LINES = 10  # lines per run without a terminal, at equal shares
OnProgress = Callable[[Step], None]


@contextmanager
def show_progress(console: Console, *, quiet: bool = False) -> Iterator[OnProgress]:
    """Yield a function that shows each progress step; one that shows nothing if `quiet`."""
    if quiet:
        yield lambda _: None
    elif console.is_terminal:
        with _bar(console) as bar:
            yield _Bar(bar)
    else:
        yield _Lines(console)


@contextmanager
def show_files(action: str, *, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Yield a function that shows the name and the bytes of each file on the terminal; nothing if `quiet`."""
    console = plain_console(stderr=True, quiet=quiet)
    n_files, n_bytes = 0, 0
    with console.status(action) as status:

        def on_file(name: str, size: int) -> None:
            nonlocal n_files, n_bytes
            n_files, n_bytes = n_files + 1, n_bytes + size
            status.update(f"{action}: {n_files:,} files, {n_bytes / 2**20:,.0f} MiB, {name}")

        yield on_file


def follow_run(steps: Iterable[Step], on_progress: OnProgress) -> str:
    """Run to the end, show each step, and return the run's id."""
    run_id = ""
    for step in steps:
        on_progress(step)
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
    """Progress bars, one per run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks = {}

    def __call__(self, step: Step) -> None:
        """Show a step in the bar of its run."""
        if step.run_id not in self._tasks:
            self._tasks[step.run_id] = self._progress.add_task(step.message, total=1.0)
        task = self._tasks[step.run_id]
        self._progress.update(task, description=step.message)
        if step.share is not None:
            self._progress.update(task, completed=step.share)
        if step.stage in ("done", "error"):
            self._progress.remove_task(self._tasks.pop(step.run_id))
            self._progress.console.print(step.message)


class _Lines:
    """Lines at the start and the end of a run and at each tenth."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._parts: dict[str, int] = {}

    def __call__(self, step: Step) -> None:
        """Print a step if it starts or ends its run or reaches the next tenth."""
        part = int(N_LINES * (step.share or 0.0))
        if step.stage in ("start", "done", "error") or part > self._parts.get(step.run_id, 0):
            self._parts[step.run_id] = part
            self._console.print(f"{step.timestamp:%H:%M:%S} {step.stage}: {step.message}", soft_wrap=True)
