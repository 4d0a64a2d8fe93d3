"""AutoResearch: search spaces, and sessions of a search."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from nvtrader_pipelines.components.text import Flags
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.search_settings import MAX_WORKERS, SearchSettings
from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.research.session_documents import (
        ExportedSession,
        JournalRow,
        ReportDocument,
        SessionDocument,
        SessionSummary,
        StoppingSession,
    )
    from nvtrader_pipelines.service.documents.space_facts import DeltaSchema, SpaceDocument
    from nvtrader_pipelines.storage.research_files import SessionFolder

SESSION = "Id of a session, or its beginning; default: the running one, else the last."
AnySession = Annotated[str | None, Field(max_length=100, description=SESSION)]


class Searches(Family):
    """AutoResearch: search over the settings of an experiment."""

    command = "research"
    examples = ("nvtrader research start --budget 20", "nvtrader research status", "nvtrader research report")

    @operation(
        "nvtrader research space",
        "nvtrader research space --mode unified --like ppo-growth",
        "nvtrader research space --json-schema",
    )
    def space(
        self,
        *,
        mode: Annotated[SearchMode, Field(description="Groups of knobs to vary.")] = SearchMode.PPO_ONLY,
        like: Annotated[
            str | None, Field(description="Experiment to search around; default: one of the mode's own.")
        ] = None,
        bounds: Annotated[
            str | Path | None,
            Field(description="YAML file of knobs: a dotted path to {low, high, log} each; default: the mode's."),
            Flags(("--space",)),
        ] = None,
        json_schema: Annotated[bool, Field(description="Write the JSON Schema of a delta instead.")] = False,
    ) -> "SpaceDocument | DeltaSchema":
        """Show the knobs that a search varies, with bounds and the base's values.

        Raises:
            StorageError, ValueError: as `find_space`.
        """
        from nvtrader_pipelines.service.documents.space_facts import DeltaSchema, find_space, space_document

        space = find_space(self.store.home, mode, like, Path(bounds) if bounds else None)
        return DeltaSchema(space.json_schema) if json_schema else space_document(space)

    @operation(
        "nvtrader research start --budget 20 --workers 2",
        "nvtrader research start --symbols AAPL,KO,XOM,JNJ --eval-mode cufolio_only --budget 50",
        "nvtrader research start --like ppo-residual --goal 'less turnover, same return'",
        route="POST /api/searches/start",
        writes=True,
        is_long=True,
    )
    def start(self, settings: SearchSettings) -> "SessionDocument":
        """Search for better settings: propose, train, judge, keep and again, within a budget.

        Trials train and are compared before the sealed days. The best is tested on those once, if it is above what luck
        explains. Ctrl-C ends the session after its current trials, a second one at once; `resume` continues it. The
        default source is the only ingested market, or sample.

        Raises:
            StorageError, ValueError: as `plan_session`.
        """
        from nvtrader_pipelines.research.session_store import create_session, session_base, unused_note
        from nvtrader_pipelines.research.space_file import read_bounds
        from nvtrader_pipelines.runs.experiment_document import read_named_experiment
        from nvtrader_pipelines.service.consoles import warn, wide_console
        from nvtrader_pipelines.service.documents.space_facts import space_document
        from nvtrader_pipelines.storage.research_files import SessionFolder

        mode = settings.eval_mode
        chosen: dict[str, Any] = {**settings.model_dump(exclude_unset=True), "eval_mode": mode}
        like, *market = (chosen.pop(name, None) for name in ("like", "source", "symbols", "total_timesteps"))
        experiment = read_named_experiment(self.store.home, like) if like else None
        if not like and len(sources := self.store.panels.sources()) == 1:
            market[0] = market[0] or sources[0]
        if "total_timesteps" in settings.model_fields_set and (note := unused_note(mode, experiment)):
            warn(note)
        base = session_base(mode, experiment, *market)
        if settings.bounds is not None:
            chosen["bounds"] = {path: item.model_dump() for path, item in read_bounds(settings.bounds).items()}
        session = create_session(self.store, base, **chosen)
        for line in () if self.opened.is_quiet else space_document(session.spec.space()).lines:
            wide_console().print(line, soft_wrap=True)
        return self._run(SessionFolder.of(self.store.home, session.session_id), settings.workers)

    @operation("nvtrader research resume", "nvtrader research resume 2026 --workers 1", writes=True, is_long=True)
    def resume(
        self,
        session_id: AnySession = None,
        *,
        workers: Annotated[int | None, Field(ge=1, le=MAX_WORKERS, description="Processes; default: 2.")] = None,
    ) -> "SessionDocument":
        """Continue a session that was stopped or killed; no finished trial is repeated.

        Raises:
            StorageError: if no session or several match, another process runs it, or its files cannot be read.
        """
        return self._run(self.store.searches.find(session_id), workers)

    @operation(
        "nvtrader research status",
        "nvtrader research status 2026 --json",
        route="GET /api/searches/status",
        is_kept=True,
    )
    def status(self, session_id: AnySession = None) -> "SessionDocument | None":
        """Show the state of a session: best trial so far, luck bar, and time left.

        Returns:
            None if no search was started yet.

        Raises:
            StorageError: if no session or several match, or its files cannot be read.
        """
        from nvtrader_pipelines.research.session_documents import session_document

        if session_id is None and not self.store.searches.folders():
            return None
        return session_document(self.store, session_id)

    @operation(
        "nvtrader research sessions",
        "nvtrader research sessions --format csv",
        route="GET /api/searches",
        is_kept=True,
    )
    def sessions(self) -> "Annotated[pl.DataFrame, SessionSummary]":
        """List sessions, newest first, with their best Sharpe ratios."""
        from nvtrader_pipelines.research.session_documents import list_sessions, session_rows

        summaries, self.notes = list_sessions(self.store)
        return session_rows(summaries)

    @operation(
        "nvtrader research journal",
        "nvtrader research journal 2026 --format csv",
        route="GET /api/searches/{session_id}/journal",
        is_kept=True,
    )
    def journal(self, session_id: AnySession = None) -> "tuple[JournalRow, ...]":
        """List proposals of a session with their results, reruns and the verdict.

        Raises:
            StorageError: if no session or several match, or its files cannot be read.
        """
        from nvtrader_pipelines.research.recorded_session import read_session
        from nvtrader_pipelines.research.session_documents import journal_rows, session_notes

        recorded = read_session(self.store.searches.find(session_id))
        self.notes = session_notes(recorded)
        return tuple(journal_rows(recorded))

    @operation("nvtrader research report", "nvtrader research report 2026 --json")
    def report(self, session_id: AnySession = None) -> "ReportDocument":
        """Print the report of a session as Markdown, and write it with its picture.

        Raises:
            StorageError: if no session or several match, or its files cannot be read.
        """
        from nvtrader_pipelines.research.session_documents import report_document

        return report_document(self.store, session_id)

    @operation("nvtrader research stop", "nvtrader research stop 2026", route="POST /api/searches/stop")
    def stop(self, session_id: AnySession = None) -> "StoppingSession":
        """End a running session after its current trials; `resume` continues it.

        Raises:
            NotFoundError: if no session or several sessions match.
            ConflictError: if no process runs it.
        """
        from nvtrader_pipelines.research.recorded_session import request_stop
        from nvtrader_pipelines.research.session_documents import StoppingSession

        folder = self.store.searches.find(session_id)
        request_stop(folder)
        return StoppingSession(session_id=folder.session_id, stop_request=folder.stop_request)

    @operation(
        "nvtrader research export --optuna study.db",
        "nvtrader research export 2026 --optuna study.db",
    )
    def export(
        self,
        session_id: AnySession = None,
        *,
        optuna: Annotated[str | Path, Field(description="New SQLite file for Optuna's dashboard and plots.")],
    ) -> "ExportedSession":
        """Write the trials of a session as a study of Optuna.

        Raises:
            StorageError: if no session or several match, its files cannot be read, or the file exists.
            ValueError: if the file cannot be written there.
        """
        from nvtrader_pipelines.research.recorded_session import read_session
        from nvtrader_pipelines.research.session_documents import ExportedSession
        from nvtrader_pipelines.research.study import export_study
        from nvtrader_pipelines.service.output_paths import require_file_path

        path = require_file_path(optuna)
        recorded = read_session(self.store.searches.find(session_id))
        export_study(recorded.lines, recorded.session.spec.space().knobs, path)
        return ExportedSession(session_id=recorded.session.session_id, file=path)

    def _run(self, folder: "SessionFolder", workers: int | None) -> "SessionDocument":
        """Run a session, and show its progress."""
        from nvtrader_pipelines.orchestration.mlflow_search import track_session
        from nvtrader_pipelines.orchestration.search_spans import trace_session
        from nvtrader_pipelines.research.recorded_session import read_session
        from nvtrader_pipelines.research.session import run_session
        from nvtrader_pipelines.research.session_documents import session_document, session_notes
        from nvtrader_pipelines.service.consoles import warn, wide_console
        from nvtrader_pipelines.service.search_display import show_session, stop_on_interrupt

        home, recorded, is_quiet = self.store.home, read_session(folder), self.opened.is_quiet
        session = recorded.session
        for note in session_notes(recorded):
            warn(note)
        with (
            stop_on_interrupt(folder, quiet=is_quiet) as signals,
            show_session(recorded, wide_console(), quiet=is_quiet) as on_line,
        ):
            steps = trace_session(home, session, run_session(self.store, folder.session_id, workers), warn)
            for line in track_session(home, session, recorded.lines, steps, warn):
                on_line(line)
                if signals:
                    folder.stop_request.touch()  # a session that begins removes an earlier request
        return session_document(self.store, folder.session_id)
