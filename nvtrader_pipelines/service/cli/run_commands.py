"""`nvtrader runs`: list, show and compare runs; replay them or walk them forward."""

import sys
from typing import Annotated

import typer

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.cli.output import print_line, write_json
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.runs import Runs

Run = Annotated[str, typer.Argument(metavar="RUN", help="Run id, its beginning, or the name of an experiment.")]


def show(
    run: Run,
    *,
    spec: Annotated[bool, typer.Option("--spec", help="Also every field of its spec.")] = False,
    files: Annotated[bool, typer.Option("--files", help="Also ids, policies by digest, and views.")] = False,
    events: Annotated[bool, typer.Option("--events", help="Also its events by stage.")] = False,
    as_json: bool,
) -> None:
    """Show a run, on a terminal with the chosen details."""
    from nvtrader_pipelines.service.cli.pages.run_pages import print_run

    document = Runs(OpenHome.find()).show(run)
    if as_json:
        write_json(document.model_dump(mode="json"))
    else:
        details = {"spec": spec, "files": files, "events": events}
        print_run(document, [name for name, is_shown in details.items() if is_shown])


def delete(
    run: Run,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without confirmation.")] = False,
    as_json: bool,
) -> None:
    """Delete a run once a person has confirmed it."""
    from nvtrader_pipelines.service.cli.pages.run_pages import print_deletion

    runs = Runs(OpenHome.find())
    deletion = runs.plan_deletion(run)
    if not as_json:
        print_deletion(deletion)
    if not (yes or deletion.is_empty):
        confirm_deletion(deletion.run.run_id)
    document = runs.delete(deletion.run.run_id)
    if as_json:
        write_json(document.model_dump(mode="json"))
    elif not deletion.is_empty:
        print_line(f"deleted run {short_id(document.run)}")


def confirm_deletion(run_id: str) -> None:
    """Ask on a terminal whether a run may be deleted.

    Raises:
        ValueError: if the answer is no, or there is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise ValueError(f"deleting run {short_id(run_id)} needs --yes without a terminal; nothing was deleted")
    if not typer.confirm(f"Delete run {short_id(run_id)}?", err=True):
        raise ValueError("nothing was deleted")


app = family_app(Runs, "run_pages", {"show": show, "delete": delete})
