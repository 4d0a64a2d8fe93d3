"""Progress of a search session: a live table on a terminal, lines elsewhere."""

import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nvtrader_pipelines.research.journal import Knobs, Line, TrialJudged, changed_values
from nvtrader_pipelines.research.recorded_session import RecordedSession
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
        self._base: Knobs = dict(self.spec.space().base_values)
        self._last: deque[TrialJudged] = deque((line for line in self.lines if _is_new(line)), N_ROWS)
        self._best_sharpes: dict[int, float] = {}  # of all seeds of the best trial so far, by proposal

    def add(self, line: Line) -> None:
        """Add a line."""
        super().add(line)
        if _is_new(line):
            self._last.append(line)
            best = self.state.best if self.state else None
            if self.state and best and best.current_lead:
                self._best_sharpes[line.proposal] = self.state.base.sharpe + best.current_lead.difference

    def draw(self) -> Group:
        """Draw the table."""
        table = Table(box=None, pad_edge=False, expand=True)
        table.add_column("trial", justify="right")
        table.add_column("knobs changed", no_wrap=True, overflow="ellipsis", ratio=1)
        for name in ("Sharpe", "best", "t", "s"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("standing", no_wrap=True)
        for row in self._last:
            lead = row.lead
            figures = (row.sharpe, self._best_sharpes.get(row.proposal), lead and lead.t, row.seconds)
            cells = ("" if figure is None else f"{figure:.2f}" for figure in figures)
            table.add_row(str(row.trial), self._knobs(row), *cells, self._standing(row))
        return Group(table, Text(self.best), Text(self.remaining))

    def _knobs(self, row: TrialJudged) -> str:
        """Values of the knobs that differ from the base."""
        values = row.knobs or row.proposed
        return ", ".join(f"{name} {value:.4g}" for name, value in changed_values(values, self._base).items())

    def _standing(self, row: TrialJudged) -> str:
        trial = self.state.trials.get(row.spec_hash) if self.state else None
        standing = trial.standing if trial else row.standing
        return row.status if standing is Standing.PRUNED else standing


def _is_new(line: Line) -> TypeGuard[TrialJudged]:
    return isinstance(line, TrialJudged) and line.status != "known"
