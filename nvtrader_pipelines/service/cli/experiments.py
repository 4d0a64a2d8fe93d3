"""`nvtrader experiments`: write, list, compare and run them."""

import json
import sys
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.errors import one_sentence
from nvtrader_pipelines.service.cli.options import EPILOG, AsJson, Form, Verbose, chosen_form, found_home, open_store
from nvtrader_pipelines.service.cli.tables import Format, wide_console, write_rows

app = typer.Typer(help="Experiments: frozen documents whose content is their identity.", no_args_is_help=True)


@app.command(epilog=EPILOG)
def new(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and dashes.")],
    *,
    like: Annotated[str | None, typer.Option("--like", help="Extend this experiment of data/experiments.")] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write data/experiments/NAME.yaml with the fields people change most; nothing is overwritten."""
    from nvtrader_pipelines.storage.specs import write_experiment

    with one_sentence(verbose=verbose):
        path = write_experiment(found_home(), name, like)
        if as_json:
            sys.stdout.write(json.dumps({"name": name, "path": str(path)}, indent=1) + "\n")
            return
        wide_console().print(f"{path}\nedit it, then: nvtrader experiments run {name}", highlight=False, soft_wrap=True)


@app.command("list", epilog=EPILOG)
def list_(*, form: Form = Format.TABLE, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List the experiments of data/experiments and every registered version, with their runs."""
    from nvtrader_pipelines.service.documents.experiment_facts import listed_experiments

    with one_sentence(verbose=verbose):
        rows, problems = listed_experiments(open_store())
        write_rows(rows, chosen_form(form, as_json=as_json))
        for problem in problems:
            typer.secho(f"left out: {problem}", err=True, fg="yellow")


@app.command(epilog=EPILOG)
def diff(
    left: Annotated[str, typer.Argument(help="A name, a version (name@hash8) or a YAML file.")],
    right: Annotated[
        str | None, typer.Argument(help="The same; without it, LEFT is compared with the version before it.")
    ] = None,
    *,
    form: Form = Format.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the fields in which two experiments or versions differ, defaults included."""
    from nvtrader_pipelines.service.documents.experiment_facts import compared_experiments

    with one_sentence(verbose=verbose):
        found = compared_experiments(open_store(), left, right)
        if chosen_form(form, as_json=as_json) is not Format.TABLE:
            write_rows(found.fields, chosen_form(form, as_json=as_json))
        elif found.left is None:
            wide_console().print(f"no version of {found.right} was registered before it", highlight=False)
        elif found.fields.is_empty():
            wide_console().print(f"{found.left} and {found.right} are the same", highlight=False)
        else:
            names = {"left": found.left, "right": found.right} if found.left != found.right else {}
            write_rows(found.fields.rename(names), Format.TABLE)


@app.command(epilog=EPILOG)
def run(
    experiment: Annotated[list[str], typer.Argument(help="Names of experiments in data/experiments.")],
    *,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train and judge experiments, an ablation's variants one by one, and print the results."""
    run_experiments(experiment, as_json=as_json, verbose=verbose)


def run_experiments(names: list[str], *, as_json: bool, verbose: bool) -> None:
    """Bring experiments up to date, with a live bar on a terminal, and write what came of them."""
    from nvtrader_pipelines.orchestration.pipeline import run_pipeline
    from nvtrader_pipelines.service.cli.summary import print_summary, summary
    from nvtrader_pipelines.service.cli.watching import watching

    with one_sentence(verbose=verbose):
        store, console = open_store(), wide_console()
        with watching(console, quiet=as_json or not console.is_terminal) as watch:
            ran = run_pipeline(store, names, watch, quiet=as_json)
        chosen = ran if names else ()
        if as_json:
            sys.stdout.write(summary(store, chosen).write_json() + "\n")
        else:
            print_summary(store, chosen, console)
