"""`nvtrader research start` and `resume`: a search session in the terminal."""

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.exit_codes import INTERRUPTED
from nvtrader_pipelines.service.cli.notify_at_end import notify_at_end
from nvtrader_pipelines.service.cli.options import parse_day, parse_symbols
from nvtrader_pipelines.service.cli.output import print_line, write_json
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.service.open_home import open_store
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store

app = typer.Typer()
AnySession = Annotated[
    str | None,
    typer.Argument(
        metavar="SESSION", help="Id of a session, or its beginning; default: the running one, else the last."
    ),
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; default: 2.")]


@command(
    app.command,
    "nvtrader research start --budget 20 --workers 2",
    "nvtrader research start --symbols AAPL,KO,XOM,JNJ --eval-mode cufolio_only --budget 50",
    "nvtrader research start --like ppo-residual --goal 'less turnover, same return'",
)
def start(  # noqa: PLR0913 - options of a command line
    *,
    goal: Annotated[str | None, typer.Option("--goal", help="Goal in your words, kept in the journal.")] = None,
    symbols: Annotated[
        str | None, typer.Option("--symbols", help="Symbols, separated by commas; default: all.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option("--budget", help="Trials; default: 20, unless --seconds is set.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Time after which no trial begins.")] = None,
    total_timesteps: Annotated[
        int | None, typer.Option("--total-timesteps", help="Training steps of a trial; default: 20,000.")
    ] = None,
    eval_mode: Annotated[
        SearchMode, typer.Option("--eval-mode", help="Groups of knobs to vary.")
    ] = SearchMode.PPO_ONLY,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed of the proposals; default: 1.")] = None,
    workers: Workers = None,
    like: Annotated[
        str | None, typer.Option("--like", help="Experiment to search around; default: one of the mode's own.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option("--space", help="YAML file of knobs, as for `nvtrader research space`.")
    ] = None,
    proposer: Annotated[
        str | None,
        typer.Option("--proposer", help="optuna, cma_es, random, grid, llm, or its settings as YAML."),
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="Source of prices in data/market.yaml.")] = None,
    validation_from: Annotated[
        date | None,
        typer.Option("--validation-from", parser=parse_day, help="First day on which trials are compared."),
    ] = None,
    sealed_from: Annotated[
        date | None, typer.Option("--sealed-from", parser=parse_day, help="First day that no trial sees.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", help="Parts of the validation, each trained for; default: 1.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="End trials early that are worse on 4 or more folds; needs 6 folds.")
    ] = False,
    as_json: bool,
) -> None:
    """Search for better settings: propose, train, judge, keep and again, within a budget.

    Trials train and are compared before the sealed days. The best is tested on those once, if it is above what luck
    explains. Ctrl-C ends the session after its current trials, a second one at once; `resume` continues it.
    """
    from nvtrader_pipelines.research.session_store import create_session, session_base
    from nvtrader_pipelines.research.space_file import read_bounds
    from nvtrader_pipelines.service.documents.experiment_facts import read_named_experiment
    from nvtrader_pipelines.service.documents.space_facts import space_document

    store = open_store()
    own_base = read_named_experiment(store.home, like) if like else None
    base = session_base(eval_mode, own_base, source, parse_symbols(symbols), total_timesteps)
    session = create_session(
        store,
        base,
        goal=goal,
        budget=budget,
        max_seconds=seconds,
        eval_mode=eval_mode,
        bounds=None if space is None else {path: each.model_dump() for path, each in read_bounds(space).items()},
        proposer=None if proposer is None else _parse_proposer(proposer),
        seed=seed,
        workers=workers,
        n_folds=folds,
        prunes=prune,
        validation_from=validation_from,
        sealed_from=sealed_from,
    )
    if not as_json:
        for line in space_document(session.spec.space()).lines:
            print_line(line)
    _run(store, session.session_id, workers, as_json=as_json)


def _parse_proposer(text: str) -> dict[str, Any]:
    """Content of a proposer: its kind, or YAML of its settings."""
    from nvtrader_pipelines.storage.documents import parse_document

    return parse_document(text.encode(), "--proposer") if text.startswith("{") else {"kind": text}


@command(app.command, "nvtrader research resume", "nvtrader research resume 2026 --workers 1")
def resume(session: AnySession = None, *, workers: Workers = None, as_json: bool) -> None:
    """Continue a session that was stopped or killed; no finished trial is repeated."""
    store = open_store()
    _run(store, store.searches.find(session).session_id, workers, as_json=as_json)


def _run(store: Store, session_id: str, workers: int | None, *, as_json: bool) -> None:
    """Run a session with its progress shown, publish the views, and write how it ended."""
    from nvtrader_pipelines.orchestration.mlflow_search import track_session
    from nvtrader_pipelines.orchestration.search_spans import trace_session
    from nvtrader_pipelines.research.recorded_session import read_session
    from nvtrader_pipelines.research.session import run_session
    from nvtrader_pipelines.service.cli.pages.search_pages import print_session
    from nvtrader_pipelines.service.cli.search_display import show_session
    from nvtrader_pipelines.service.documents.search_facts import session_document, session_notes
    from nvtrader_pipelines.storage.views.publishing import publish

    folder = SessionFolder.of(store.home, session_id)
    recorded = read_session(folder)
    for note in session_notes(recorded):
        _warn(note)
    with (
        notify_at_end(store, shlex.join(["nvtrader", "research", "resume", session_id])),
        _stop_on_interrupt(folder, quiet=as_json) as interruption,
        show_session(recorded, wide_console(), quiet=as_json) as on_line,
    ):
        steps = trace_session(store.home, recorded.session, run_session(store, session_id, workers), _warn)
        for line in track_session(store.home, recorded.session, recorded.lines, steps, _warn):
            on_line(line)
            if interruption:
                folder.stop_request.touch()  # a session that begins removes an earlier request
    publish(store)
    document = session_document(store, session_id)
    if as_json:
        write_json(document.model_dump(mode="json"))
    else:
        print_session(document)
    if interruption:
        raise typer.Exit(INTERRUPTED)


def _warn(problem: str) -> None:
    typer.secho(problem, err=True, fg="yellow")


@contextmanager
def _stop_on_interrupt(folder: SessionFolder, *, quiet: bool) -> Iterator[list[int]]:
    """Request a stop at the first Ctrl-C, whose signal is then in the list; the second one interrupts."""
    signals: list[int] = []

    def stop(number: int, _: Any) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)
        folder.stop_request.touch()
        if not quiet:
            print_line("the session ends after its current trials; Ctrl-C again ends it at once")

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, before)
