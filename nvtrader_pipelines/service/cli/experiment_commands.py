"""`nvtrader experiments`: write, list, compare and run experiments."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from nvtrader_pipelines.service.cli.notify_at_end import notify_at_end
from nvtrader_pipelines.service.cli.options import Judge, with_examples
from nvtrader_pipelines.service.cli.output import Format, print_differences, print_line, write_json, write_rows
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.service.open_home import open_store, require_home
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.runs.training_time import TrainingEstimate

app = typer.Typer(
    name="experiments",
    help="Experiments: write, check, list, compare, run and archive them.",
    epilog=with_examples("nvtrader experiments list", "nvtrader experiments run my-first"),
    no_args_is_help=True,
)
Names = Annotated[list[str], typer.Argument(help="Names of experiments; an ablation includes its variants.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Start trainings of more than a day without confirmation.")]
LEADING_COLUMNS = ("partition_key", "last_status", "runs")  # columns that narrow terminals show


@command(app.command, "nvtrader experiments new my-first", "nvtrader experiments new my-second --like ppo-growth")
def new(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and dashes.")],
    *,
    like: Annotated[str | None, typer.Option("--like", help="Extend this experiment of data/experiments.")] = None,
    as_json: bool,
) -> None:
    """Write data/experiments/NAME.yaml with common fields; never overwrite a file."""
    from nvtrader_pipelines.service.documents.experiment_facts import NewExperiment
    from nvtrader_pipelines.storage.specs import write_experiment

    path = write_experiment(require_home(), name, like)
    if as_json:
        write_json(NewExperiment(name=name, path=path).model_dump(mode="json"))
        return
    wide_console().print(f"{path}\nedit it, then: nvtrader experiments run {name}", soft_wrap=True)


@command(app.command, "nvtrader experiments list", "nvtrader experiments list --all", name="list")
def list_(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also archived ones, and versions without file or run.")
    ] = False,
    form: Format,
) -> None:
    """List the experiments of data/experiments and every version that ran, with their runs."""
    import polars as pl

    from nvtrader_pipelines.service.documents.experiment_list import ListedExperiment, list_experiments

    rows, problems, n_hidden = list_experiments(open_store(), everything=everything)
    write_rows(rows.select(*LEADING_COLUMNS, pl.exclude(LEADING_COLUMNS)), form, model=ListedExperiment)
    if n_hidden:
        typer.echo(f"{n_hidden} not listed, archived or without file and run: add --all", err=True)
    for problem in problems:
        typer.secho(f"skipped: {problem}", err=True, fg="yellow")


@command(app.command, "nvtrader experiments diff ppo-growth", "nvtrader experiments diff ppo-growth ppo-cvar")
def diff(
    left: Annotated[str, typer.Argument(help="Name, version (name@hash8) or YAML file.")],
    right: Annotated[
        str | None, typer.Argument(help="Name, version or YAML file; default: the version before LEFT.")
    ] = None,
    *,
    form: Format,
) -> None:
    """Show the fields in which two experiments or versions differ, defaults included."""
    from nvtrader_pipelines.service.documents.experiment_facts import FieldDifference, compare_experiments

    comparison = compare_experiments(open_store(), left, right)
    if form is not Format.TABLE:
        write_rows(comparison.fields, form, model=FieldDifference)
    elif comparison.left is None:
        wide_console().print(f"{comparison.right} has no earlier registered version")
    else:
        print_differences(comparison.fields, comparison.left, comparison.right)


@command(app.command, "nvtrader experiments run my-first", "nvtrader experiments run ppo-growth ppo-cvar --json")
def run(
    experiment: Annotated[list[str], typer.Argument(help="Names of experiments in data/experiments.")],
    *,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Only try one fold and seed with few steps in memory; no result.")
    ] = False,
    yes: Yes = False,
    judge: Judge = True,
    form: Format,
) -> None:
    """Train and evaluate experiments (of an ablation, each variant) and print the results."""
    if smoke:
        smoke_experiments(experiment, form)
    else:
        run_experiments(experiment, form, yes=yes, judge=judge)


def smoke_experiments(names: list[str], form: Format) -> None:
    """Make a smoke run of each experiment and print its extent."""
    import polars as pl

    from nvtrader_pipelines.orchestration.materialize import smoke_pipeline
    from nvtrader_pipelines.service.documents.experiment_facts import SmokeDocument

    tried = smoke_pipeline(open_store(), names, quiet=form is not Format.TABLE)
    if form is not Format.TABLE:
        rows = pl.DataFrame([{**asdict(each), "is_result": False} for each in tried])
        write_rows(rows, form, model=SmokeDocument)
        return
    for each in tried:
        print_line(
            f"{each.experiment}: one of {each.n_folds} folds and {each.n_seeds} seeds, trained in "
            f"{each.timesteps or 0:,} steps, walked and judged in {each.seconds:.1f} s: it works"
        )
    print_line("no result: nothing was stored, registered or counted as a trial", style="yellow")


def run_experiments(names: list[str], form: Format, *, yes: bool, judge: bool) -> None:
    """Bring experiments up to date, show progress, and write results and problems."""
    from nvtrader_pipelines.promotion.active_policy import mirror_pointer
    from nvtrader_pipelines.runs.pipeline_state import read_pipeline_state

    store = open_store()
    mirror_pointer(store)  # not every materialization reads the active policy
    command = shlex.join(["nvtrader", *(["experiments", "run", *names] if names else ["materialize"])])
    with notify_at_end(store, command, with_runs=True):
        keys = read_pipeline_state(store, names) if judge else None
        if keys is None:
            _run_pipeline(store, names, form, yes=yes, judge=judge)
            return
        if form is Format.TABLE:
            lines = (f"experiment {i} of {len(keys)}: {key} is" for i, key in enumerate(keys, start=1))
            for line in ("market:", *lines, "judgement:", "promotion:"):
                print_line(f"{line} up to date")
        named = [key.partition("@")[0] for key in keys] if names else ()
        _write_results(store, named, form, has_new_bars=False)


def _write_results(store: Store, names: Sequence[str], form: Format, *, has_new_bars: bool) -> None:
    from nvtrader_pipelines.runs.market_summary import summarize_market
    from nvtrader_pipelines.service.cli.pages.market_page import print_market, print_unchanged
    from nvtrader_pipelines.service.cli.summary import print_summary
    from nvtrader_pipelines.service.documents.run_facts import SummaryFigures, summary_rows

    if form is Format.TABLE:
        summary = summarize_market(store)
        print_market(summary, wide_console()) if has_new_bars else print_unchanged(summary)
        print_summary(store, names, wide_console())
    else:
        write_rows(summary_rows(store, names), form, model=SummaryFigures)


def _run_pipeline(store: Store, names: list[str], form: Format, *, yes: bool, judge: bool) -> None:
    from nvtrader_pipelines.orchestration.materialize import run_pipeline
    from nvtrader_pipelines.runs.market_state import market_is_current
    from nvtrader_pipelines.service.progress_display import show_progress

    console, quiet = wide_console(), form is not Format.TABLE
    confirm, has_new_bars = None if yes else confirm_long, not market_is_current(store)
    with show_progress(console, quiet=quiet or not console.is_terminal) as on_progress:
        ran = run_pipeline(store, names, on_progress, confirm=confirm, judge=judge, quiet=quiet)
    _write_results(store, ran.names if names else (), form, has_new_bars=has_new_bars)
    for name, problem in ran.problems.items():
        prefix = "" if problem.startswith(name) else f"{name}: "  # problems of files begin with their name
        typer.secho(f"skipped: {prefix}{problem}", err=True, fg="red")
    if ran.problems:
        raise typer.Exit(BAD_INPUT)


def confirm_long(trainings: "Sequence[TrainingEstimate]") -> None:
    """Ask on a terminal whether trainings of more than a day may start.

    Raises:
        ValueError: if the answer is no, or there is no terminal to ask on.
    """
    from nvtrader_pipelines.runs.training_time import describe_long_trainings

    if not sys.stdin.isatty():
        raise ValueError(describe_long_trainings(trainings))
    if not typer.confirm(f"{'; '.join(each.sentence for each in trainings)}. Start?", err=True):
        raise ValueError("no training was started; lower total_timesteps, or give --yes")


@command(app.command, "nvtrader experiments validate", "nvtrader experiments validate my-first")
def validate(
    experiment: Annotated[list[str] | None, typer.Argument(help="Names of experiments; default: all files.")] = None,
    *,
    form: Format,
) -> None:
    """Check experiments and plan them on the market, without registering or running them."""
    from nvtrader_pipelines.service.documents.experiment_facts import ValidatedExperiment, validate_experiments

    rows = validate_experiments(open_store(), experiment or [])
    write_rows(rows, form, ["warnings", "problem"], ValidatedExperiment)
    if rows["problem"].is_not_null().any():
        raise typer.Exit(BAD_INPUT)


@command(app.command, "nvtrader experiments show my-first")
def show(
    experiment: Annotated[str, typer.Argument(help="Name of an experiment in data/experiments.")], *, as_json: bool
) -> None:
    """Show an experiment: state, versions, last run, plan, training time and resolved spec."""
    from nvtrader_pipelines.service.cli.pages.experiment_pages import print_experiment
    from nvtrader_pipelines.service.documents.experiment_facts import experiment_document

    document = experiment_document(open_store(), experiment)
    if as_json:
        write_json(document.model_dump(mode="json"))
    else:
        print_experiment(document)


@command(app.command, "nvtrader experiments archive my-first my-second")
def archive(name: Names, *, as_json: bool) -> None:
    """Hide experiments from lists, sensors and `materialize`; their files, runs and trials stay."""
    _set_archived(name, archived=True, as_json=as_json)


@command(app.command, "nvtrader experiments unarchive my-first")
def unarchive(name: Names, *, as_json: bool) -> None:
    """Put archived experiments back."""
    _set_archived(name, archived=False, as_json=as_json)


def _set_archived(experiments: Sequence[str], *, archived: bool, as_json: bool) -> None:
    from nvtrader_pipelines.runs.archiving import names_with_variants
    from nvtrader_pipelines.service.documents.experiment_facts import ArchivedExperiments

    store = open_store()
    names = list(dict.fromkeys(each for name in experiments for each in names_with_variants(store, name)))
    (store.ledger.archive if archived else store.ledger.unarchive)(names)
    if as_json:
        write_json(ArchivedExperiments(names=tuple(names), archived=archived).model_dump(mode="json"))
    else:
        print_line(f"{'archived' if archived else 'unarchived'}: {', '.join(names)}")
