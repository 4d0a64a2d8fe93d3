"""Options that every command shares, the home folder they all work on, and who gives them."""

import getpass
import os
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.tables import Format
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

EPILOG = (
    "Exit codes: 0 done, 1 the pipeline failed, an account holds something else than expected, orders may still be "
    "open after halt, or doctor found something missing, 2 wrong usage, 3 bad input or a missing file, 130 interrupted."
)
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the trace of an error.")]
Form = Annotated[Format, typer.Option("--format", "-f", help="table, csv or json.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]
Account = Annotated[str, typer.Option("--account", help="An account of data/accounts; `paper` needs no file.")]


def chosen_form(form: Format, *, as_json: bool) -> Format:
    """The form that was asked for in either way."""
    return Format.JSON if as_json else form


def refuse_options_before_command(context: typer.Context) -> None:
    """Refuse options between a group and its command: the command would act without them, on another account say.

    Raises:
        typer.BadParameter: if there is one.
    """
    sources = [context.get_parameter_source(name) for name in context.params]
    if context.invoked_subcommand and any(source and source.name != "DEFAULT" for source in sources):
        raise typer.BadParameter(f"give the options of {context.invoked_subcommand} after it")


def found_home() -> Home:
    """The home folder.

    Raises:
        ValueError: if the folder that was named is not there.
    """
    home = Home.find()
    if not home.root.is_dir():
        raise ValueError(f"NVTRADER_HOME names {home.root}, which is no folder; create it or name another")
    return home


def open_store() -> Store:
    """Open the store of the home folder.

    Raises:
        ValueError: as `found_home`.
    """
    return Store(found_home())


def person() -> str:
    """Who gives the command, as the audit names them: the user's name, or the number of one who has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # which of them depends on the version of Python
        return f"user {os.getuid()}"
