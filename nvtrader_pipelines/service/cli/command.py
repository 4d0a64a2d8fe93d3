"""Registration of a command with the help, options and exit codes that commands share."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from nvtrader_pipelines.service.cli.exit_codes import exit_on_error
from nvtrader_pipelines.service.cli.options import with_examples
from nvtrader_pipelines.service.cli.output import Format, PageFormat

Function = TypeVar("Function", bound=Callable[..., None])


def _option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


AS_JSON = _option(
    "as_json",
    Annotated[bool, typer.Option("--json", help="Write JSON, as --format json does; errors are JSON, too.")],
    default=False,
)
VERBOSE = _option(
    "verbose", Annotated[bool, typer.Option("--verbose", "-v", help="Show the trace of an error.")], default=False
)
OUTPUT = {  # parameter of a command → options that decide it
    "form": (
        _option("form", Annotated[Format, typer.Option("--format", "-f", help="table, csv or json.")], Format.TABLE),
        AS_JSON,
    ),
    "as_json": (
        _option("form", Annotated[PageFormat, typer.Option("--format", "-f", help="table or json.")], PageFormat.TABLE),
        AS_JSON,
    ),
}


def command(register: Callable[..., Any], *examples: str, **settings: Any) -> Callable[[Function], Function]:
    """Register a function as a command or callback with examples, `--verbose` and exit codes.

    A function with the parameter `form` writes rows, and one with `as_json` a document: both get `--format` and
    `--json`.
    """

    def decorate(function: Function) -> Function:
        register(epilog=with_examples(*examples), **settings)(_with_shared_options(function))
        return function

    return decorate


def _with_shared_options(function: Callable[..., None]) -> Callable[..., None]:
    own = inspect.signature(function)

    @wraps(function)
    def run(*, verbose: bool, form: Format = Format.TABLE, as_json: bool = False, **arguments: Any) -> None:
        output = {"form": Format.JSON if as_json else form, "as_json": as_json or form == Format.JSON}
        with exit_on_error(verbose=verbose):
            function(**arguments, **{name: output[name] for name in OUTPUT if name in own.parameters})

    parameters = [parameter for name, parameter in own.parameters.items() if name not in OUTPUT]
    shared = [option for name in OUTPUT if name in own.parameters for option in OUTPUT[name]]
    run.__signature__ = own.replace(parameters=[*parameters, *shared, VERBOSE])  # pyright: ignore[reportAttributeAccessIssue] - typer reads it
    return run
