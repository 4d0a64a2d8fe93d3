"""`nvtrader runs`: list, show and compare runs; replay them or walk them forward."""

import shlex
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.notify_at_end import notify_at_end
from nvtrader_pipelines.service.cli.options import parse_day
from nvtrader_pipelines.service.cli.output import Format, print_part, write_json, write_rows
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.service.open_home import open_store
from nvtrader_pipelines.service.output_paths import picture_path
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.experiments.progress import Progress

app = typer.Typer(name="runs", help="Runs of experiments and their results.")
Prefix = Annotated[str, typer.Argument(metavar="RUN", help="Run id, its beginning, or the name of an experiment.")]
All = Annotated[bool, typer.Option("--all", help="Also deleted runs and those of archived experiments.")]
ACCOUNT_STAGES = ("signal.emitted", "order.placed", "order.filled", "equity.update")


@command(
    app.callback,
    "nvtrader runs",
    "nvtrader runs --format csv",
    "nvtrader runs show ppo-residual",
    invoke_without_command=True,
)
@command(app.command, "nvtrader runs list", "nvtrader runs list --json", name="list")
def list_(*, everything: All = False, form: Format) -> None:
    """List runs, newest first, with their net Sharpe ratios."""
    from nvtrader_pipelines.service.cli.pages.run_pages import print_runs
    from nvtrader_pipelines.service.cli.summary import print_warnings
    from nvtrader_pipelines.service.documents.run_facts import ListedRun, list_runs

    store = _current_store()
    rows = list_runs(store, everything=everything)
    if form is Format.TABLE:
        print_runs(rows)
        print_warnings(store, wide_console())
    else:
        write_rows(rows, form, model=ListedRun)


@command(app.command, "nvtrader runs show ppo-residual", "nvtrader runs show 3f2a --json")
def show(
    run: Prefix,
    *,
    spec: Annotated[bool, typer.Option("--spec", help="Also every field of its spec.")] = False,
    files: Annotated[bool, typer.Option("--files", help="Also ids, policies by digest, and views.")] = False,
    events: Annotated[bool, typer.Option("--events", help="Also its events by stage.")] = False,
    as_json: bool,
) -> None:
    """Show a run: verdict, version, market and figures; JSON has everything."""
    from nvtrader_pipelines.service.cli.pages.run_pages import print_run
    from nvtrader_pipelines.service.documents.run_facts import find_run_by_name, run_document

    store = _current_store()
    document = run_document(store, find_run_by_name(store.ledger, run))
    if as_json:
        write_json(document.model_dump(mode="json"))
    else:
        details = {"spec": spec, "files": files, "events": events}
        print_run(document, [name for name, is_shown in details.items() if is_shown])


@command(
    app.command, "nvtrader runs compare ppo-growth ppo-cvar", "nvtrader runs compare ppo-growth ppo-cvar -o both.svg"
)
def compare(
    run: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Two or more runs, named as for `show`.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Picture to write, .png or .svg; default: warehouse/pictures/runs.png."),
    ] = None,
    as_json: bool,
) -> None:
    """Compare runs: figures, a picture of their shared sessions, and differences of specs."""
    from nvtrader_pipelines.service.cli.pages.run_pages import print_comparison
    from nvtrader_pipelines.service.documents.run_comparison import compare_named_runs, comparison_document

    store = _current_store()
    comparison = compare_named_runs(store, run, picture_path(output, store.home.comparison_picture))
    if as_json:
        write_json(comparison_document(comparison).model_dump(mode="json"))
    else:
        print_comparison(comparison)


@command(app.command, "nvtrader runs windows ppo-residual", "nvtrader runs windows 3f2a --sessions 63 -o quarter.svg")
def windows(
    run: Prefix,
    *,
    sessions: Annotated[int, typer.Option("--sessions", min=2, help="Sessions in a window.")] = 42,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Picture to write, .png or .svg; default: in warehouse/pictures."),
    ] = None,
    as_json: bool,
) -> None:
    """Draw how returns vary over all windows of a run's test sessions.

    Beside the policy are the run's best baseline, picked with hindsight, and 1/N. Windows overlap, so they are no
    independent sample; each lies within the tests of one fold.
    """
    from nvtrader_pipelines.runs.run_pictures import draw_session_windows, session_windows_path
    from nvtrader_pipelines.service.cli.pages.run_pages import print_windows
    from nvtrader_pipelines.service.documents.run_facts import find_run_by_name, windows_document

    store = _current_store()
    ledger_run = find_run_by_name(store.ledger, run)
    path = picture_path(output, session_windows_path(store, ledger_run))
    distribution = draw_session_windows(store, ledger_run, sessions, path)
    if as_json:
        write_json(windows_document(ledger_run, sessions, distribution, path).model_dump(mode="json"))
    else:
        print_windows(distribution, sessions, path)


@command(
    app.command,
    "nvtrader runs replay ppo-residual",
    "nvtrader runs replay ppo-residual --from 2020-02-03 --to 2020-05-29",
)
def replay(
    run: Prefix,
    *,
    first: Annotated[
        date | None, typer.Option("--from", parser=parse_day, help="First day; default: its tests' first.")
    ] = None,
    last: Annotated[
        date | None,
        typer.Option(
            "--to",
            parser=parse_day,
            help="Last day; default: last test session, or the market's if --from is later.",
        ),
    ] = None,
    pinned: Annotated[
        bool, typer.Option("--pinned", help="Use the market data the run recorded instead of the current.")
    ] = False,
    as_json: bool,
) -> None:
    """Walk the stored policies of a run through another window, or through its own."""
    from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
    from nvtrader_pipelines.runs.lifecycle import Launch
    from nvtrader_pipelines.runs.train_walk_judge import replay_run, replay_window
    from nvtrader_pipelines.service.documents.run_facts import require_trained_run

    store = _current_store()
    with notify_at_end(store, shlex.join(["nvtrader", "runs", "replay", run])):
        run_id = require_trained_run(store, run).run_id
        window = replay_window(store, run_id, (first, last))
        track = MlflowTracking.at(store.home).track
        steps = replay_run(store, run_id, Launch(uuid4().hex), window, pinned=pinned, track=track)
        _execute(store, steps, as_json=as_json)


@command(app.command, "nvtrader runs forward ppo-residual")
def forward(run: Prefix, *, as_json: bool) -> None:
    """Walk a run's last policies over all sessions since its tests; no order is placed.

    The walk is a new run. It shows whether the policies have held up, and it has no account. `nvtrader trade` trades:
    the active policy on an account, with orders that pass compliance.
    """
    from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
    from nvtrader_pipelines.runs.lifecycle import Launch
    from nvtrader_pipelines.runs.train_walk_judge import forward_run
    from nvtrader_pipelines.service.documents.run_facts import require_trained_run

    store = _current_store()
    with notify_at_end(store, shlex.join(["nvtrader", "runs", "forward", run])):
        run_id = require_trained_run(store, run).run_id
        steps = forward_run(store, run_id, Launch(uuid4().hex), MlflowTracking.at(store.home).track)
        _execute(store, steps, as_json=as_json)


@command(app.command, "nvtrader runs delete 3f2a91c0", "nvtrader runs delete 3f2a91c0 --yes")
def delete(
    run: Prefix,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without confirmation.")] = False,
    as_json: bool,
) -> None:
    """Delete a run's policies, rows, pictures and MLflow run; a trial remains one."""
    from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
    from nvtrader_pipelines.promotion.active_policy import read_active
    from nvtrader_pipelines.runs.run_deletion import delete_run, plan_deletion
    from nvtrader_pipelines.service.cli.pages.run_pages import print_deletion
    from nvtrader_pipelines.service.documents.run_facts import deletion_document, find_run_by_name

    store = _current_store()
    active = read_active(store)
    deletion = plan_deletion(store, find_run_by_name(store.ledger, run), active.run_id if active else None)
    if not as_json:
        print_deletion(deletion)
    if not (yes or deletion.is_empty):
        confirm_deletion(deletion.run.run_id)
    delete_run(store, deletion, MlflowTracking.at(store.home).delete)
    if as_json:
        write_json(deletion_document(deletion).model_dump(mode="json"))
    elif not deletion.is_empty:
        wide_console().print(f"deleted run {short_id(deletion.run.run_id)}")


def confirm_deletion(run_id: str) -> None:
    """Ask on a terminal whether a run may be deleted.

    Raises:
        ValueError: if the answer is no, or there is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise ValueError(f"deleting run {short_id(run_id)} needs --yes without a terminal; nothing was deleted")
    if not typer.confirm(f"Delete run {short_id(run_id)}?", err=True):
        raise ValueError("nothing was deleted")


def _current_store() -> Store:
    """Open the store and mark runs whose process has ended as interrupted."""
    from nvtrader_pipelines.service.documents.run_facts import close_dead_runs

    store = open_store()
    close_dead_runs(store)
    return store


def _execute(store: Store, steps: "Iterable[Progress]", *, as_json: bool) -> None:
    """Drain a run with its progress shown, publish the views, and write the verdict."""
    import polars as pl

    from nvtrader_pipelines.service.cli.pages.run_pages import print_figures
    from nvtrader_pipelines.service.documents.run_facts import stage_rows, verdict_rows, walk_document
    from nvtrader_pipelines.service.progress_display import follow_run, show_progress
    from nvtrader_pipelines.storage.views.publishing import publish

    with show_progress(wide_console(), quiet=as_json) as on_progress:
        run_id = follow_run(steps, on_progress)
    publish(store)
    run, verdict = store.ledger.run(run_id), verdict_rows(store, run_id)
    if as_json:
        write_json(walk_document(run, verdict).model_dump(mode="json"))
        return
    if run.kind == "forward":
        activity = store.ledger.events(run_id).filter(
            pl.col("task_id") == run.task_id, pl.col("stage").is_in(ACCOUNT_STAGES)
        )
        print_part("the account", stage_rows(activity).drop("fold", "seed"), "no session since its tests")
    print_figures(verdict)
    wide_console().print(f"run {run_id}: nvtrader runs show {short_id(run_id)}")
