"""Pages of search spaces and sessions: state, list and journal."""

from collections.abc import Sequence

import polars as pl

from nvtrader_pipelines.components.document import schema_of
from nvtrader_pipelines.research.proposal_bounds import Adjustment
from nvtrader_pipelines.research.sentences import format_trials
from nvtrader_pipelines.research.session_documents import (
    JournalRow,
    ReportDocument,
    SessionDocument,
)
from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import Format, print_line, print_lines, write_json, write_rows
from nvtrader_pipelines.service.documents.space_facts import DeltaSchema, SpaceDocument

DIGITS = 2  # of ratios in a table
RATIOS = ("sharpe", "lead", "t", "bar", "base_sharpe", "best_sharpe")


def print_space(space: SpaceDocument | DeltaSchema) -> None:
    """Print the knobs of a space, and sentences on it; a schema is JSON in any case."""
    if isinstance(space, DeltaSchema):
        write_json(space.root)
        return
    write_rows(space.frame("knobs"), Format.TABLE)
    for line in space.lines:
        print_line(line)


def print_sessions(answer: Answer) -> None:
    """Print sessions."""
    if len(answer.document):
        write_rows(answer.document.pipe(_rounded), Format.TABLE)
    elif not answer.home.store.searches.folders():
        print_line("no search session yet: nvtrader research start", "dim")


def journal_table(rows: Sequence[JournalRow]) -> pl.DataFrame:
    """Rows of a journal, with knobs and adjustments as text."""
    texts = [
        {
            **row.model_dump(),
            "changed": ", ".join(f"{name} {value:.4g}" for name, value in row.changed.items()),
            "clips": _format_adjustments(row.clips),
            "snaps": _format_adjustments(row.snaps),
        }
        for row in rows
    ]
    return pl.DataFrame(texts, schema=schema_of(JournalRow))


def print_journal(rows: Sequence[JournalRow]) -> None:
    """Print a journal as a table, the verdict below."""
    verdict = next((row.message for row in rows if row.event == "verdict"), "")
    table = journal_table([row for row in rows if row.event != "verdict"])
    empty = [name for name in ("clips", "snaps") if not table[name].list.len().sum()]
    write_rows(table.drop(empty).pipe(_rounded), Format.TABLE)
    if verdict:
        print_line(verdict)


def print_session(document: SessionDocument) -> None:
    """Print the state of a session, and the command that shows more."""
    summary, windows, spec = document.summary, document.windows, document.spec
    trials = format_trials(summary.n_trials, summary.budget)
    left = "" if document.seconds_left is None else f", about {_format_seconds(document.seconds_left)} left"
    handed_on = document.handed_on
    verb = "resume" if summary.state == "stopped" else "report"
    print_lines(
        {
            "session": f"{summary.session_id} {summary.state}: {trials}, {summary.n_known} known{left}",
            "goal": summary.goal,
            "result": document.sentence,
            "searches": f"{summary.mode} around {spec.base.name}, {summary.n_symbols} symbols of {summary.source}, "
            f"{spec.proposer.kind} with seed {spec.seed}",
            "windows": f"trains before {windows.validation_from}, validates before {windows.sealed_from}, sealed from "
            "then on",
            "work": f"{_format_seconds(summary.seconds)} of training and judging since "
            f"{summary.started_at:%Y-%m-%d %H:%M} UTC",
            "handed on": f"as {handed_on}: `nvtrader ui` or `nvtrader materialize {handed_on}` lets the gate decide"
            if handed_on
            else "",
            "notes": "; ".join(document.notes),
            "next": f"nvtrader research {verb} {summary.session_id}",
        },
        width=9,
    )


def _rounded(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col(name).round(DIGITS) for name in RATIOS if name in rows.columns)


def _format_adjustments(adjustments: Sequence[Adjustment]) -> list[str]:
    return [f"{adjustment.knob} {adjustment.proposed:.4g} → {adjustment.used:.4g}" for adjustment in adjustments]


def _format_seconds(seconds: float) -> str:
    """Format a duration in its largest unit that counts at least two."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def print_report(report: ReportDocument) -> None:
    """Print the path of a report, and its text."""
    print_line(str(report.path), "dim")
    print_line(report.markdown)


STOPPING = "session {0.session_id} ends after its current trials: nvtrader research status"
EXPORTED = "wrote {0.file}: optuna-dashboard sqlite:///{0.file}"
PAGES = {
    "space": lambda answer: print_space(answer.document),
    **dict.fromkeys(("start", "resume", "status"), lambda answer: print_session(answer.document)),
    "sessions": print_sessions,
    "report": lambda answer: print_report(answer.document),
    "stop": lambda answer: print_line(STOPPING.format(answer.document)),
    "export": lambda answer: print_line(EXPORTED.format(answer.document)),
}
