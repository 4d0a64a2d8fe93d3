"""`nvtrader train` and `nvtrader materialize`: one training of PPO on chosen symbols, or all experiments."""

from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.experiment_commands import Yes, run_experiments
from nvtrader_pipelines.service.cli.options import Judge, parse_symbols
from nvtrader_pipelines.service.cli.output import Format
from nvtrader_pipelines.service.open_home import open_store

app = typer.Typer()
Symbols = Annotated[str | None, typer.Option("--symbols", help="Symbols, separated by commas; default: all.")]
Timesteps = Annotated[
    int | None, typer.Option("--timesteps", help="Steps of each fold and seed; default: the agent's.")
]
Source = Annotated[str, typer.Option("--source", help="Source of prices, as data/market.yaml names it.")]


@command(app.command, "nvtrader train", "nvtrader train --symbols AAPL,KO,XOM,JNJ --timesteps 20480")
def train(
    *,
    symbols: Symbols = None,
    timesteps: Timesteps = None,
    source: Source = "sample",
    yes: Yes = False,
    judge: Judge = True,
    form: Format,
) -> None:
    """Train PPO with its defaults and judge it: a manual run in one command.

    It writes data/experiments/train-<digits>.yaml, whose name follows from the options: equal options continue or
    show the same experiment. While it trains, every point of its learning curve is appended to a file in
    warehouse/training_curves, and `nvtrader status --json` shows the curve of the training that reported last.
    """
    from nvtrader_pipelines.runs.manual_run import store_manual_experiment

    name = store_manual_experiment(open_store(), source, parse_symbols(symbols), timesteps)
    run_experiments([name], form, yes=yes, judge=judge)


@command(app.command, "nvtrader materialize", "nvtrader materialize ppo-growth ppo-cvar")
def materialize(
    experiment: Annotated[
        list[str] | None, typer.Argument(help="Names of experiments; default: all of data/experiments.")
    ] = None,
    *,
    yes: Yes = False,
    judge: Judge = True,
    form: Format,
) -> None:
    """Materialize the whole graph, recomputing only what changed, and print the results."""
    run_experiments(experiment or [], form, yes=yes, judge=judge)
