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
from typing import Annotated, Any, get_origin

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.exit_codes import OK
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


def family_app(
    family: type[Family],
    pages: str = "",
    own: Mapping[str, Callable[..., None]] = MappingProxyType({}),
    exit_codes: Mapping[str, ExitCode] = MappingProxyType({}),
) -> typer.Typer:
    """Make the commands of a family.

    Args:
        family: operations.
        pages: module of `pages` whose `PAGES` print documents by operation; others are printed as facts and tables.
        own: functions of commands by operation whose words are not its parameters.
        exit_codes: exit codes by operation, where a document tells of a failure.
    """
    title, operations = (family.__doc__ or "").partition("\n")[0], operations_of(family)
    app = typer.Typer(name=family.command or None)
    for name, one in operations.items():
        if function := own.get(name):
            function.__doc__ = one.text
        else:
            function = command_of(family, name, one, pages, exit_codes.get(name))
        if name == family.alone:
            command(app.callback, *family.examples, invoke_without_command=True)(function)
        command(app.command, *one.examples, name=name.strip("_").replace("_", "-"))(function)
    if family.command:
        app.info.help = title
    if family.command and not family.alone:
        app.info.epilog, app.info.no_args_is_help = with_examples(*family.examples), True
    return app


def command_of(
    family: type[Family], name: str, one: Operation, pages: str, exit_code: ExitCode | None
) -> Callable[..., None]:
    """Make the function of a command of an operation."""
    words = ["nvtrader", *filter(None, [family.command]), name.strip("_").replace("_", "-")]

    def run(*, form: Format = Format.TABLE, as_json: bool = False, **values: Any) -> None:
        form = Format.JSON if as_json else form
        home = OpenHome.find(is_quiet=form is not Format.TABLE, is_intact=not one.repairs)
        arguments = {parameter.name: _argument(parameter, values) for parameter in one.parameters}
        named = [arguments[each.name] for each in one.parameters if not each.is_option]
        line = [*words, *(value for value in named if isinstance(value, str))]
        with notify_at_end(home.store, shlex.join(line), with_runs=True) if one.is_long else nullcontext():
            subject = family(home)
            document = getattr(subject, name)(**arguments)
            code = exit_code(document) if exit_code else OK
            _write(one, Answer(document, home, arguments), form, pages, name)
            for note in subject.notes:
                warn(note)
            if code:
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
        write_rows(document, form, model=one.returns.__args__[0] if form is Format.JSON else None)
    elif form is Format.JSON:
        write_json(document.model_dump(mode="json"))
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
    kind: Any = parameter.kind
    settings: dict[str, Any] = {"help": parameter.description}
    if kind is int:
        bounds = {EDGES[name][0]: bound + EDGES[name][1] for name, bound in parameter.bounds.items()}
        settings |= bounds
    elif kind is date:
        settings["parser"] = parse_day
    elif get_origin(kind) is tuple:
        kind = str if parameter.is_option else list[str]
    default = None if parameter.default == () else parameter.default
    is_shown = parameter.is_required or default is not None
    flags = [f"{flag}/--no-{flag[2:]}" if default is True else flag for flag in parameter.flags]
    mark = (
        typer.Option(*flags, **settings)
        if parameter.is_option
        else typer.Argument(metavar=_metavar(parameter), **settings)
    )
    annotation = Annotated[kind if is_shown else kind | None, mark]
    return [inspect.Parameter(parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)]


def _metavar(parameter: Parameter) -> str | None:
    """Name of an argument in the help; of several values, Typer's own."""
    return None if get_origin(parameter.kind) is tuple else parameter.name.upper()


def _fields(parameter: Parameter) -> list[Parameter]:
    """Fields of a parameter that is a model of settings, as options."""
    fields = getattr(parameter.kind, "model_fields", {})
    return [
        Parameter.of(
            name,
            Annotated[field.annotation, field, *field.metadata],
            field.default if isinstance(field.default, bool | Enum) else None,
            is_option=True,
        )
        for name, field in fields.items()
    ]


def _argument(parameter: Parameter, values: Mapping[str, Any]) -> Any:
    """Value of a parameter from those of a command line."""
    if fields := _fields(parameter):
        given = {each.name: _argument(each, values) for each in fields if values[each.name] != each.default}
        return validate_document(given, parameter.kind, "the options are not valid")
    value = values[parameter.name]
    if get_origin(parameter.kind) is tuple:
        return tuple((parse_symbols(value) if parameter.is_option else value) or ())
    return value.expanduser() if isinstance(value, Path) else value
