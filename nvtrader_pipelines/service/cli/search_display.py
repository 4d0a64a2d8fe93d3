"""Progress of a search session: a live table on a terminal, lines elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from statistics import fmean
from typing import TypeGuard

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nvtrader_pipelines.research.journal import Knobs, Line, LookOpened, TrialJudged, TrialRerun
from nvtrader_pipelines.research.recorded_session import RecordedSession, recorded_state
from nvtrader_pipelines.research.sentences import format_progress, format_trials
from nvtrader_pipelines.research.session_report import changed_knobs
from nvtrader_pipelines.research.verdict import Standing

N_ROWS = 12  # of the live table: the last trials
OnLine = Callable[[Line], None]


@contextmanager
def show_session(recorded: RecordedSession, console: Console, *, quiet: bool = False) -> Iterator[OnLine]:
    """Yield a function that shows each line of the journal as it comes; one that shows nothing if `quiet`."""
    if quiet:
        yield lambda _: None
        return
    progress = SessionProgress(recorded)
    if not console.is_terminal:

        def print_line(line: Line) -> None:
            progress.add(line)
            console.print(progress.sentence(line), soft_wrap=True)

        yield print_line
        return
    with Live(console=console, get_renderable=progress.table, refresh_per_second=2, transient=True):
        yield progress.add


class SessionProgress:
    """Trials of a session so far, with the time that the others may take."""

    def __init__(self, recorded: RecordedSession) -> None:
        self._spec, self._lines = recorded.session.spec, list(recorded.lines)
        self._base: Knobs = dict(self._spec.space().base_values)
        self._last: deque[TrialJudged] = deque((line for line in self._lines if _is_new(line)), N_ROWS)
        self._best_sharpes: dict[int, float] = {}  # of all seeds of the best trial so far, by proposal
        self._n_before = self._n_trials = sum(map(_is_new, self._lines))
        self._state = recorded_state(self._lines)
        self._began = time.monotonic()

    def add(self, line: Line) -> None:
        """Add a line."""
        self._lines.append(line)
        self._state = recorded_state(self._lines)
        if _is_new(line):
            self._n_trials += 1
            self._last.append(line)
            best = self._state.best if self._state else None
            if self._state and best and best.current_lead:
                self._best_sharpes[line.proposal] = self._state.base.sharpe + best.current_lead.difference

    def sentence(self, line: Line) -> str:
        """Describe a line, and the best trial so far after a trial."""
        if isinstance(line, TrialJudged):
            figure = "" if line.sharpe is None else f"Sharpe {line.sharpe:.2f}, "
            done = f"trial {line.trial}" if line.trial else "the base"
            again = f" again (proposal {line.proposal})" if line.status == "known" else self._of_budget
            return f"{done}{again}: {figure}{line.message or line.standing}. {self.best}"
        if isinstance(line, TrialRerun):
            return f"trial {line.trial} with two other seeds: {line.message or line.standing}. {self.best}"
        if isinstance(line, LookOpened):
            return (
                f"look {line.look} at the sealed window confirms a true lead of {line.smallest_lead:.2f} 4 times in 5"
            )
        return line.sentence if line.event == "verdict" else f"the base is judged: Sharpe {fmean(line.sharpes):.2f}"

    def table(self) -> Group:
        """Table of the last trials, with the best so far and the time left."""
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

    @property
    def best(self) -> str:
        """Best trial so far, in words."""
        return format_progress(self._state) if self._state else "The base is being judged."

    @property
    def remaining(self) -> str:
        """Trials done, and the time that the others may take."""
        done = format_trials(self._n_trials, self._spec.budget)
        n_new = self._n_trials - self._n_before
        if not n_new or self._spec.budget is None:
            return done
        seconds = (time.monotonic() - self._began) / n_new * (self._spec.budget - self._n_trials)
        return f"{done}, {timedelta(seconds=round(seconds))} left"

    @property
    def _of_budget(self) -> str:
        return "" if self._spec.budget is None else f" of {self._spec.budget}"

    def _knobs(self, row: TrialJudged) -> str:
        """Values of the knobs that differ from the base."""
        values = row.knobs or row.proposed
        return ", ".join(f"{name} {values[name]:.4g}" for name in changed_knobs(values, self._base))

    def _standing(self, row: TrialJudged) -> str:
        trial = self._state.trials.get(row.spec_hash) if self._state else None
        standing = trial.standing if trial else row.standing
        return row.status if standing is Standing.PRUNED else standing


def _is_new(line: Line) -> TypeGuard[TrialJudged]:
    return isinstance(line, TrialJudged) and line.status != "known"
