"""Progress of a search session: a live table on a terminal, lines elsewhere."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nvtrader_pipelines.research.journal import Line
from nvtrader_pipelines.research.recorded_session import RecordedSession, TrialView, trial_views
from nvtrader_pipelines.research.session_progress import SessionProgress
from nvtrader_pipelines.research.verdict import Standing
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.storage.research_files import SessionFolder

N_ROWS = 12  # of the live table: the last trials
OnLine = Callable[[Line], None]


@contextmanager
def show_session(recorded: RecordedSession, console: Console, *, quiet: bool = False) -> Iterator[OnLine]:
    """Yield a function that shows each line of the journal as it comes; one that shows nothing if `quiet`."""
    if quiet:
        yield lambda _: None
        return
    if not console.is_terminal:
        progress = SessionProgress(recorded)

        def print_line(line: Line) -> None:
            progress.add(line)
            console.print(progress.sentence(line), soft_wrap=True)

        yield print_line
        return
    table = ProgressTable(recorded)
    with Live(console=console, get_renderable=table.draw, refresh_per_second=2, transient=True):
        yield table.add


@contextmanager
def stop_on_interrupt(folder: SessionFolder, *, quiet: bool) -> Iterator[list[int]]:
    """Request a stop at the first Ctrl-C, whose signal is then in the list; the second one interrupts."""
    signals: list[int] = []

    def stop(number: int, _: Any) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)
        folder.stop_request.touch()
        if not quiet:
            text = "the session ends after its current trials; Ctrl-C again ends it at once"
            wide_console().print(text, soft_wrap=True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, before)


class ProgressTable(SessionProgress):
    """Table of the last trials of a session, with the best so far and the time left."""

    def __init__(self, recorded: RecordedSession) -> None:
        super().__init__(recorded)
        self._last = trial_views(self.lines)[-N_ROWS:]

    def add(self, line: Line) -> None:
        """Add a line."""
        super().add(line)
        self._last = trial_views(self.lines)[-N_ROWS:]

    def draw(self) -> Group:
        """Draw the table."""
        table = Table(box=None, pad_edge=False, expand=True)
        table.add_column("trial", justify="right")
        table.add_column("knobs changed", no_wrap=True, overflow="ellipsis", ratio=1)
        for name in ("Sharpe", "best", "t", "s"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("standing", no_wrap=True)
        for trial in self._last:
            table.add_row(*_cells(trial))
        return Group(table, Text(self.best), Text(self.remaining))


def _cells(trial: TrialView) -> list[str]:
    """Cells of a trial; its own figures are those of the first seed."""
    line, standing = trial.line, trial.trial.standing
    figures = (line.sharpe, trial.after.sharpe_of(trial.after.best), line.lead and line.lead.t, line.seconds)
    return [
        str(trial.number),
        ", ".join(f"{name} {value:.4g}" for name, value in trial.changed.items()),
        *("" if figure is None else f"{figure:.2f}" for figure in figures),
        line.status if standing is Standing.PRUNED else standing,
    ]
