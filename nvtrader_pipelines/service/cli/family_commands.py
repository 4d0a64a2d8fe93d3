"""Commands of a family of operations: options from parameters, output from documents."""

import inspect
import shlex
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic import TypeAdapter

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.notify_at_end import notify_at_end
from nvtrader_pipelines.service.cli.options import parse_day, parse_symbols, with_examples
from nvtrader_pipelines.service.cli.output import Format, print_facts, write_json, write_rows
from nvtrader_pipelines.service.consoles import warn
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.operation import Family, Operation, Parameter, operations_of
from nvtrader_pipelines.storage.documents import validate_document

EDGES = {"ge": ("min", 0), "gt": ("min", 1), "le": ("max", 0), "lt": ("max", -1)}  # of Typer, from Pydantic's


@dataclass(frozen=True)
class Answer:
    """What a command answers with, and what it was asked."""

    document: Any
    home: OpenHome
    arguments: Mapping[str, Any]


Page = Callable[[Answer], None]
ExitCode = Callable[[Any], int]  # of a document
Course = Callable[..., None]  # of a family, with the format and the arguments


def family_app(
    family: type[Family],
    pages: str = "",
    own: Mapping[str, Callable[..., None]] = MappingProxyType({}),
    exit_codes: Mapping[str, ExitCode] = MappingProxyType({}),
    courses: Mapping[str, Course] = MappingProxyType({}),
) -> typer.Typer:
    """Make the commands of a family.

    Args:
        family: operations.
        pages: module of `pages` whose `PAGES` print documents by operation; others are printed as facts and tables.
        own: functions of commands by operation whose words are not its parameters.
        exit_codes: exit codes by operation, where a document tells of a failure.
        courses: functions by operation that call it and write its answer, such as after a question on a terminal.

    Returns:
        The group of the family; beside its commands of the root if it has any.
    """
    root, app = typer.Typer(), typer.Typer(name=family.command or None)
    for name, one in operations_of(family).items():
        function = own.get(name) or command_of(family, name, one, pages, exit_codes.get(name), courses.get(name))
        function.__doc__ = one.text
        if name == family.alone:
            command(app.callback, *family.examples, invoke_without_command=True)(function)
        place = root if one.command else app
        command(place.command, *one.examples, name=words_of(family, name, one)[-1])(function)
    if family.command:
        app.info.help = (family.__doc__ or "").partition("\n")[0]
    if family.command and not family.alone:
        app.info.epilog, app.info.no_args_is_help = with_examples(*family.examples), True
    if not root.registered_commands:
        return app
    root.add_typer(app)
    return root


def words_of(family: type[Family], name: str, one: Operation) -> list[str]:
    """Words of the command of an operation."""
    return one.command.split() or [*filter(None, [family.command]), name.replace("_", "-")]


def command_of(
    family: type[Family], name: str, one: Operation, pages: str, exit_code: ExitCode | None, course: Course | None
) -> Callable[..., None]:
    """Make the function of a command of an operation."""

    def run(*, form: Format = Format.TABLE, as_json: bool = False, **values: Any) -> None:
        form = Format.JSON if as_json else form
        home = OpenHome.find(is_quiet=form is not Format.TABLE)
        arguments = {parameter.name: _argument(parameter, values) for parameter in one.parameters}
        named = [parameter for parameter in one.parameters if not (parameter.is_option or _fields(parameter))]
        given = [arguments[parameter.name] for parameter in named]
        words = [word for value in given for word in (value if isinstance(value, tuple) else (value,))]
        account = ["--account", arguments["account"]] if "account" in arguments else []
        line = ["nvtrader", *words_of(family, name, one), *(str(word) for word in words if word is not None), *account]
        operations = family(home)
        if course:
            course(operations, form, **arguments)
            return
        with notify_at_end(home.store, shlex.join(line), with_runs=True) if one.is_long else nullcontext():
            document = one.call(operations, arguments)
            if document is not None:
                _write(one, Answer(document, home, arguments), form, pages, name)
            for note in operations.notes:
                warn(note)
            if exit_code and (code := exit_code(document)):
                raise typer.Exit(code)

    parameters = [option for parameter in one.parameters for option in _options(parameter)]
    output = inspect.Parameter("form" if one.is_frame else "as_json", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = inspect.Signature([*parameters, output])  # pyright: ignore[reportFunctionMemberAccess]
    run.__doc__ = one.text
    return run


def _write(one: Operation, answer: Answer, form: Format, pages: str, name: str) -> None:
    """Write an answer in the chosen format."""
    document = answer.document
    if one.is_frame and form is not Format.TABLE:
        write_rows(document, form, model=one.row if form is Format.JSON else None)
    elif form is Format.JSON:
        write_json(TypeAdapter(Any).dump_python(document, mode="json"))
    elif page := import_module(f"{__package__}.pages.{pages}").PAGES.get(name) if pages else None:
        page(answer)
    elif one.is_frame:
        write_rows(document, form)
    else:
        print_facts(document)


def _options(parameter: Parameter) -> list[inspect.Parameter]:
    """Argument or option of a parameter; of settings, an option for each field, None if it is not given."""
    if fields := _fields(parameter):
        return [option for field in fields for option in _options(field)]
    kind: Any = get_args(parameter.kind)[0] if get_origin(parameter.kind) is Annotated else parameter.kind
    settings: dict[str, Any] = {"help": parameter.description}
    if kind is int:
        bounds = {EDGES[name][0]: bound + EDGES[name][1] for name, bound in parameter.bounds.items()}
        settings |= bounds
    elif kind is date:
        settings["parser"] = parse_day
    elif get_origin(kind) is tuple:
        kind = list[Path] if parameter.is_local else str if parameter.is_option else list[str]
    default = None if parameter.default == () else parameter.default
    is_shown = parameter.is_required or default is not None
    flags = [f"{flag}/--no-{flag[2:]}" if default is True else flag for flag in parameter.flags]
    if not parameter.is_option and get_origin(parameter.kind) is not tuple:  # of several values, Typer's own
        settings["metavar"] = parameter.name.upper()
    mark = typer.Option(*flags, **settings) if parameter.is_option else typer.Argument(**settings)
    annotation = Annotated[kind if is_shown else kind | None, mark]
    return [inspect.Parameter(parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)]


def _fields(parameter: Parameter) -> list[Parameter]:
    """Fields of a parameter that is a model of settings, as options."""
    fields = getattr(parameter.kind, "model_fields", {})
    return [
        Parameter.of(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=Annotated[field.annotation, field, *field.metadata],
                default=field.default if isinstance(field.default, bool | Enum) else None,
            )
        )
        for name, field in fields.items()
    ]


def _argument(parameter: Parameter, values: Mapping[str, Any]) -> Any:
    """Value of a parameter from those of a command line."""
    if fields := _fields(parameter):
        given = {field.name: _argument(field, values) for field in fields if values[field.name] != field.default}
        return validate_document(given, parameter.kind, "the options are not valid")
    value = values[parameter.name]
    if get_origin(parameter.kind) is tuple:
        if not isinstance(value, str):
            return tuple(value or ())
        if not (symbols := parse_symbols(value)):
            raise ValueError(f"{parameter.flags[0]} must have a name, but is {value!r}; leave it out for all")
        return symbols
    return value
