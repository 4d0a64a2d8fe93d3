"""Options that every command shares, the home folder they all work on, and who gives them."""

import getpass
import os
import re
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

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
COMMENT = re.compile(r"--[^\s=]*\s")  # how SQL may begin, and no option does


class QueryCommand(TyperCommand):
    """A command whose query may begin with a comment, which else is an option that nobody knows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line, with a space before such a query: it is no option then."""
        return super().parse_args(ctx, [f" {each}" if COMMENT.match(each) else each for each in args])


def chosen_form(form: Format, *, as_json: bool) -> Format:
    """The form that was asked for in either way."""
    return Format.JSON if as_json else form


def hand_on(context: typer.Context) -> None:
    """Let options that are given before a command be those of the command, unless it is given them itself.

    Raises:
        typer.BadParameter: if the command has no such option.
    """
    group, name = context.command, context.invoked_subcommand
    if name is None or not isinstance(group, TyperGroup) or (command := group.get_command(context, name)) is None:
        return
    options = {each.name: max(each.opts, key=len) for each in group.params if each.name}
    given = [each for each in options if (source := context.get_parameter_source(each)) and source.name != "DEFAULT"]
    strange = sorted(options[each] for each in set(given) - {each.name for each in command.params})
    if strange:
        raise typer.BadParameter(f"{context.command_path} {name} has no {' and no '.join(strange)}; leave it out")
    context.default_map = {name: {each: context.params[each] for each in given}}


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
