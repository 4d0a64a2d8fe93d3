"""`nvtrader experiments`: write, list, compare and run experiments."""

from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.exit_codes import exit_on_error
from nvtrader_pipelines.service.cli.options import (
    AsJson,
    Form,
    PageForm,
    Verbose,
    is_json,
    open_store,
    output_format,
    require_home,
    with_examples,
)
from nvtrader_pipelines.service.cli.output import Format, PageFormat, wide_console, write_json, write_rows

app = typer.Typer(
    help="Experiments: write, list, compare and run them.",
    epilog=with_examples("nvtrader experiments list", "nvtrader experiments run my-first"),
    no_args_is_help=True,
)
LIST_FIRST = ("partition_key", "last_status", "runs")  # columns that narrow terminals show


@app.command(
    epilog=with_examples("nvtrader experiments new my-first", "nvtrader experiments new my-second --like ppo-growth")
)
def new(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and dashes.")],
    *,
    like: Annotated[str | None, typer.Option("--like", help="Extend this experiment of data/experiments.")] = None,
    form: PageForm = PageFormat.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write data/experiments/NAME.yaml with common fields; never overwrite a file."""
    from nvtrader_pipelines.storage.specs import write_experiment

    with exit_on_error(verbose=verbose):
        path = write_experiment(require_home(), name, like)
        if is_json(form, as_json=as_json):
            write_json({"name": name, "path": str(path)})
            return
        wide_console().print(f"{path}\nedit it, then: nvtrader experiments run {name}", soft_wrap=True)


@app.command("list", epilog=with_examples("nvtrader experiments list", "nvtrader experiments list --format csv"))
def list_(*, form: Form = Format.TABLE, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List the experiments of data/experiments and every registered version, with their runs."""
    import polars as pl

    from nvtrader_pipelines.service.documents.experiment_facts import list_experiments

    with exit_on_error(verbose=verbose):
        rows, problems = list_experiments(open_store())
        write_rows(rows.select(*LIST_FIRST, pl.exclude(LIST_FIRST)), output_format(form, as_json=as_json))
        for problem in problems:
            typer.secho(f"skipped: {problem}", err=True, fg="yellow")


@app.command(
    epilog=with_examples("nvtrader experiments diff ppo-growth", "nvtrader experiments diff ppo-growth ppo-cvar")
)
def diff(
    left: Annotated[str, typer.Argument(help="Name, version (name@hash8) or YAML file.")],
    right: Annotated[
        str | None, typer.Argument(help="Name, version or YAML file; default: the version before LEFT.")
    ] = None,
    *,
    form: Form = Format.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the fields in which two experiments or versions differ, defaults included."""
    from nvtrader_pipelines.service.documents.experiment_facts import compare_experiments

    with exit_on_error(verbose=verbose):
        comparison = compare_experiments(open_store(), left, right)
        if output_format(form, as_json=as_json) is not Format.TABLE:
            write_rows(comparison.fields, output_format(form, as_json=as_json))
        elif comparison.left is None:
            wide_console().print(f"{comparison.right} has no earlier registered version")
        elif comparison.fields.is_empty():
            wide_console().print(f"{comparison.left} and {comparison.right} are the same")
        else:
            names = {"left": comparison.left, "right": comparison.right} if comparison.left != comparison.right else {}
            write_rows(comparison.fields.rename(names), Format.TABLE)


@app.command(
    epilog=with_examples("nvtrader experiments run my-first", "nvtrader experiments run ppo-growth ppo-cvar --json")
)
def run(
    experiment: Annotated[list[str], typer.Argument(help="Names of experiments in data/experiments.")],
    *,
    form: Form = Format.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train and evaluate experiments (of an ablation, each variant) and print the results."""
    run_experiments(experiment, output_format(form, as_json=as_json), verbose=verbose)


def run_experiments(names: list[str], form: Format, *, verbose: bool) -> None:
    """Bring experiments up to date, show their progress, and write their results."""
    from nvtrader_pipelines.orchestration.materialize import run_pipeline
    from nvtrader_pipelines.service.cli.progress_display import show_progress
    from nvtrader_pipelines.service.cli.summary import print_summary, summary_rows

    with exit_on_error(verbose=verbose):
        store, console, quiet = open_store(), wide_console(), form is not Format.TABLE
        with show_progress(console, quiet=quiet or not console.is_terminal) as on_progress:
            ran = run_pipeline(store, names, on_progress, quiet=quiet)
        chosen = ran if names else ()
        if quiet:
            write_rows(summary_rows(store, chosen), form)
        else:
            print_summary(store, chosen, console)
