"""`nvtrader experiments`, `train` and `materialize`: write, list, compare and run experiments."""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, OK
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.cli.notify_at_end import notify_at_end
from nvtrader_pipelines.service.cli.output import Format, write_rows
from nvtrader_pipelines.service.operations.experiments import Experiments

if TYPE_CHECKING:
    from nvtrader_pipelines.runs.training_time import TrainingEstimate

LEADING_COLUMNS = ("partition_key", "last_status", "runs")  # columns that narrow terminals show


def list_(experiments: Experiments, form: Format, *, everything: bool) -> None:
    """Write the list, and on stderr the problems of files and the number of versions left out."""
    import polars as pl

    from nvtrader_pipelines.runs.experiment_list import ListedExperiment, list_experiments

    rows, problems, n_hidden = list_experiments(experiments.store, everything=everything)
    write_rows(rows.select(*LEADING_COLUMNS, pl.exclude(LEADING_COLUMNS)), form, model=ListedExperiment)
    if n_hidden:
        typer.echo(f"{n_hidden} not listed, archived or without file and run: add --all", err=True)
    for problem in problems:
        typer.secho(f"skipped: {problem}", err=True, fg="yellow")


def run_experiments(
    operations: Experiments,
    form: Format,
    *,
    experiments: Sequence[Any],
    yes: bool,
    judge: bool,
    has_new_bars: bool = False,
) -> None:
    """Bring experiments up to date, write results and problems, and send notifications."""
    line = ["experiments", "run", *experiments] if experiments else ["materialize"]
    with notify_at_end(operations.store, shlex.join(["nvtrader", *line]), with_runs=True):
        _run_experiments(operations, form, experiments, yes=yes, judge=judge, has_new_bars=has_new_bars)


def _run_experiments(
    operations: Experiments, form: Format, experiments: Sequence[Any], *, yes: bool, judge: bool, has_new_bars: bool
) -> None:
    from nvtrader_pipelines.runs.market_state import market_is_current
    from nvtrader_pipelines.runs.run_document import SummaryFigures, summary_rows

    store = operations.store
    has_new_bars = has_new_bars or not market_is_current(store)
    done, problems = operations.update(experiments, judge=judge, confirm=None if yes else confirm_long)
    if form is Format.TABLE:
        from nvtrader_pipelines.service.cli.pages.experiment_pages import print_results

        print_results(store, done if experiments else (), has_new_bars=has_new_bars)
    else:
        write_rows(summary_rows(store, done if experiments else ()), form, model=SummaryFigures)
    for name, problem in problems.items():
        prefix = "" if problem.startswith(name) else f"{name}: "  # problems of files begin with their name
        typer.secho(f"skipped: {prefix}{problem}", err=True, fg="red")
    if problems:
        raise typer.Exit(BAD_INPUT)


def run(operations: Experiments, form: Format, *, smoke: bool, experiments: Sequence[Any], **options: bool) -> None:
    """Run experiments, or only try them."""
    if not smoke:
        run_experiments(operations, form, experiments=experiments, **options)
        return
    from nvtrader_pipelines.runs.experiment_document import SmokeDocument
    from nvtrader_pipelines.service.cli.pages.experiment_pages import print_smoke

    rows = operations.run(*experiments, smoke=True)
    if form is Format.TABLE:
        print_smoke(rows)
    else:
        write_rows(rows, form, model=SmokeDocument)


def train(
    operations: Experiments, form: Format, *, symbols: Any, total_timesteps: Any, source: str, **options: bool
) -> None:
    """Run a manual experiment."""
    from nvtrader_pipelines.runs.registration import store_manual_experiment

    name = store_manual_experiment(operations.store, source, symbols or None, total_timesteps)
    run_experiments(operations, form, experiments=(name,), **options)


def apps(
    operations: Experiments,
    form: Format,
    *,
    app: Any,
    files: Sequence[Any],
    total_timesteps: int | None,
    **options: bool,
) -> None:
    """Run the experiment of an application; print the month that `paper` traded, and what comes next."""
    from nvtrader_pipelines.runs.market_state import market_is_current
    from nvtrader_pipelines.service.cli.pages.experiment_pages import print_next_of_app

    had_market = market_is_current(operations.store)
    name = operations.prepare_app(app, files, total_timesteps)
    has_new_bars = bool(files) or not had_market
    run_experiments(operations, form, experiments=(name,), has_new_bars=has_new_bars, **options)
    month = operations.trade_month(name) if app == "paper" else None
    if form is Format.TABLE:
        print_next_of_app(name, month)


def confirm_long(trainings: "Sequence[TrainingEstimate]") -> None:
    """Ask on a terminal whether trainings of more than a day may start.

    Raises:
        ValueError: if the answer is no, or there is no terminal to ask on.
    """
    from nvtrader_pipelines.runs.training_time import describe_long_trainings

    if not sys.stdin.isatty():
        raise ValueError(describe_long_trainings(trainings))
    if not typer.confirm(f"{'; '.join(training.sentence for training in trainings)}. Start?", err=True):
        raise ValueError("no training was started; lower total_timesteps, or give --yes")


app = family_app(
    Experiments,
    "experiment_pages",
    exit_codes={"validate": lambda rows: BAD_INPUT if rows["problem"].is_not_null().any() else OK},
    courses={"list": list_, "run": run, "train": train, "apps": apps, "materialize": run_experiments},
)
