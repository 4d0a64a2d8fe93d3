"""The `nvtrader` command: its help comes from an index, and a command's module is imported when it is called."""

import atexit
import gc
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.lazy_group import LazyGroup
from nvtrader_pipelines.service.cli.options import with_examples
from nvtrader_pipelines.service.library_noise import silence_exit

app = typer.Typer(
    name="nvtrader",
    cls=LazyGroup,
    epilog=with_examples("nvtrader materialize", "nvtrader scoreboard", "nvtrader runs show ppo-residual"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(value: bool) -> None:  # noqa: FBT001 - the signature of a callback
    if value:
        from importlib.metadata import version

        typer.echo(f"nvtrader {version('nvtrader-pipelines')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """From market prices to portfolio policies, tested and traded on paper or at a broker."""


def main() -> None:
    """Run the `nvtrader` script."""
    gc.set_threshold(50_000, 20, 20)  # by default a fifth of the time of imports goes to garbage collection
    silence_exit()
    atexit.register(gc.freeze)  # a last garbage collection would take over a second
    app()
