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
CONTEXT = _option("context", typer.Context, None)
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
    """Register a function as a command with examples, the shared options and exit codes.

    A function with the parameter `form` writes rows, and one with `as_json` a document: both get `--format` and
    `--json`. The callback of a group is called only if no command of the group is.
    """

    def decorate(function: Function) -> Function:
        is_group = settings.get("invoke_without_command", False)
        register(epilog=with_examples(*examples), **settings)(_with_shared_options(function, is_group=is_group))
        return function

    return decorate


def _with_shared_options(function: Callable[..., None], *, is_group: bool) -> Callable[..., None]:
    own = inspect.signature(function)

    @wraps(function)
    def run(
        *,
        verbose: bool,
        form: Format = Format.TABLE,
        as_json: bool = False,
        context: typer.Context | None = None,
        **arguments: Any,
    ) -> None:
        output = {"form": Format.JSON if as_json else form, "as_json": as_json or form == Format.JSON}
        with exit_on_error(verbose=verbose):
            if context is None or is_without_command(context):
                function(**arguments, **{name: output[name] for name in OUTPUT if name in own.parameters})

    parameters = [parameter for name, parameter in own.parameters.items() if name not in OUTPUT]
    shared = [option for name in OUTPUT if name in own.parameters for option in OUTPUT[name]]
    run.__signature__ = own.replace(  # pyright: ignore[reportAttributeAccessIssue] - typer reads it
        parameters=[*parameters, *shared, VERBOSE, *([CONTEXT] if is_group else [])]
    )
    return run


def is_without_command(context: typer.Context) -> bool:
    """Whether a group is called without a command of its own.

    Raises:
        typer.BadParameter: if options precede the command, which would not see them.
    """
    sources = [context.get_parameter_source(name) for name in context.params]
    if context.invoked_subcommand and any(source and source.name != "DEFAULT" for source in sources):
        raise typer.BadParameter(f"give the options of {context.invoked_subcommand} after it")
    return context.invoked_subcommand is None
