"""AutoResearch: one search session a run, and its trials."""

import hashlib
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from enum import Enum
from threading import current_thread, main_thread
from types import FrameType
from typing import Annotated, Any

import dagster as dg
from pydantic import BaseModel, Field, create_model

from nvtrader_pipelines.figures import importance_figure
from nvtrader_pipelines.figures.canvas import Picture
from nvtrader_pipelines.orchestration.mlflow_search import track_session
from nvtrader_pipelines.orchestration.reports import store_pictures, table_result
from nvtrader_pipelines.research.recorded_session import RecordedSession, is_closed, read_session, recorded_state
from nvtrader_pipelines.research.search_settings import TIMESTEPS, LaunchSettings
from nvtrader_pipelines.research.session import run_session
from nvtrader_pipelines.research.session_picture import draw_session
from nvtrader_pipelines.research.session_progress import SessionProgress
from nvtrader_pipelines.research.session_store import create_session, launched_options, unused_note
from nvtrader_pipelines.research.session_tables import session_row
from nvtrader_pipelines.research.study import knob_importances
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RESEARCH_TRIALS

SESSION_KEY, TRIALS_KEY = dg.AssetKey(["research", "autoresearch_session"]), dg.AssetKey(["research", "trials"])
FIGURES = ("n_trials", "n_known", "base_sharpe", "best_trial", "best_sharpe", "outcome", "look", "seconds")
PARENT = "dagster/parent_run_id"  # tag of a retry and of a re-execution
IMPORTANCE_NOTE = "By Optuna's PED-ANOVA: how much a knob's values differ between good trials and all of them."


def launchpad_config(settings: type[BaseModel]) -> Any:
    """Derive the base of a configuration from settings: Dagster has no tuples, and takes choices by name."""
    fields: dict[str, Any] = {}
    for name, field in settings.model_fields.items():
        kind: Any = field.annotation
        default = field.default
        if isinstance(default, tuple):
            kind, default = list[str], list(default)
        elif isinstance(default, Enum):
            kind = Enum(type(default).__name__, {member.value: member.value for member in type(default)})
            default = kind(default.value)
        fields[name] = Annotated[kind, *field.metadata, Field(description=field.description)], default
    return create_model(f"{settings.__name__}Config", __base__=dg.Config, **fields)


class AutoresearchConfig(launchpad_config(LaunchSettings)):
    """Settings of a search session; `nvtrader research start` has more of them."""


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            SESSION_KEY,
            deps=[["gold", "market_panel"]],
            description="Search session: proposals of changed knobs, judged within a budget, with one verdict.",
            group_name="research",
            kinds={"optuna", "iceberg", "mlflow"},
            code_version="1",
        ),
        dg.AssetSpec(
            TRIALS_KEY,
            deps=[["gold", "market_panel"]],
            description="Trials of all search sessions: knobs, Sharpe ratio, lead over the base and standing.",
            group_name="research",
            kinds={"optuna", "iceberg"},
            code_version="1",
        ),
    ],
    name="autoresearch_session",
    pool="training",
)
def autoresearch_session(
    context: dg.AssetExecutionContext, config: AutoresearchConfig, store: dg.ResourceParam[Store]
) -> Iterator[dg.MaterializeResult]:
    """Run a search session to its verdict.

    A retry of the run resumes it. Terminate ends it after its current trials, and a re-execution resumes it, too.
    """
    from nvtrader_pipelines.orchestration.search_spans import trace_session  # imports OpenTelemetry: 0.3 s

    settings = LaunchSettings.model_validate(config.model_dump(mode="json"))
    folder = find_or_create(context.instance, context.run, settings, store)
    recorded = read_session(folder)
    context.log.info("session %s in %s", folder.session_id, folder.path)
    progress, warn = SessionProgress(recorded), context.log.warning
    if settings.total_timesteps != TIMESTEPS and (note := unused_note(settings.eval_mode)):
        warn(note)
    steps = run_session(store, folder.session_id, settings.workers)
    traced = trace_session(store.home, recorded.session, steps, warn)
    with (
        closing(track_session(store.home, recorded.session, recorded.lines, traced, warn)) as tracked,
        _stop_when_terminated(context, folder) as is_terminated,
    ):
        for line in tracked:
            progress.add(line)
            context.log.info("%s (%s)", progress.sentence(line), progress.remaining)
            if is_terminated:
                folder.stop_request.touch()  # a session that begins removes an earlier request
    ended = read_session(folder)
    digest = hashlib.sha256(b"\n".join(folder.read_lines())).hexdigest()
    yield dg.MaterializeResult(
        asset_key=SESSION_KEY, metadata=session_metadata(store, ended), data_version=dg.DataVersion(digest)
    )
    yield table_result(store, RESEARCH_TRIALS, progress.n_trials)


def find_or_create(
    instance: dg.DagsterInstance, run: dg.DagsterRun, settings: LaunchSettings, store: Store
) -> SessionFolder:
    """Return the session of a run, which is that of the run it retries, and create it if there is none.

    Raises:
        StorageError, ValueError: as `create_session`.
        ValueError: if the session has other settings than the run.
    """
    options = launched_options(store.home, settings)
    folder = session_of(instance, run, store.home)
    if not folder.settings.exists():
        create_session(store, session_id=folder.session_id, **options)
        return folder
    spec = read_session(folder).session.spec
    given = {name: value for name, value in options.items() if name != "workers" and value is not None}
    wanted = type(spec).model_validate({**dict(spec), **given})
    changed = [name for name in given if getattr(spec, name) != getattr(wanted, name)]
    if changed:
        raise ValueError(
            f"a retry or re-execution resumes session {folder.session_id} and must have its settings, but "
            f"{', '.join(changed)} differ; launch the job anew for another session"
        )
    return folder


def session_of(instance: dg.DagsterInstance, run: dg.DagsterRun, home: Home) -> SessionFolder:
    """Session of a run: that of its parent, unless that run has finished it; ids follow from the first run."""
    parent = instance.get_run_by_id(run.tags.get(PARENT, ""))
    if parent is not None:
        folder = session_of(instance, parent, home)
        if not (parent.is_success and folder.settings.exists() and is_closed(read_session(folder).lines)):
            return folder
    record = instance.get_run_record_by_id(run.run_id)
    began = datetime.now(UTC) if record is None else record.create_timestamp
    return SessionFolder.of(home, f"{began:%Y%m%d-%H%M%S}-{run.run_id[:4]}")


def session_metadata(store: Store, recorded: RecordedSession) -> dict[str, Any]:
    """Verdict, figures, pictures and report of a session."""
    session, lines, folder = recorded.session, recorded.lines, recorded.folder
    row = session_row(session, lines)
    pictures: dict[str, Picture] = {}
    if recorded_state(lines):
        pictures["sharpe"] = draw_session(session, lines)
    importances = knob_importances(lines, session.spec.space().knobs)
    if importances:
        pictures["importances"] = importance_figure(
            importances, f"Importance of the knobs, session {session.session_id}", IMPORTANCE_NOTE
        )
    return {
        "session": session.session_id,
        "verdict": row["sentence"] or "stopped; re-execute the run to resume the session",
        **{name: row[name] for name in FIGURES if row[name] is not None},
        **store_pictures(store.home, "autoresearch_session", pictures),
        "report": dg.MetadataValue.md(folder.report.read_text()),
        "folder": dg.MetadataValue.path(str(folder.path)),
    }


@contextmanager
def _stop_when_terminated(context: dg.AssetExecutionContext, folder: SessionFolder) -> Iterator[list[int]]:
    """Let Terminate end the session after its current trials; its signal is then in the list.

    Other interrupts, as at the end of the UI, pass. Outside the main thread there are none.
    """
    signals: list[int] = []
    if current_thread() is not main_thread():
        yield signals
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: FrameType | None) -> None:
        run = context.instance.get_run_by_id(context.run.run_id)
        if run is None or run.status is not dg.DagsterRunStatus.CANCELING:
            before[number](number, frame)
        signals.append(number)
        folder.stop_request.touch()

    for number in before:
        signal.signal(number, stop)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
