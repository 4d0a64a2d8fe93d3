"""Use cases as methods of a home, with the values by which every door offers them."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    ForwardRef,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo

from nvtrader_pipelines.components.text import Flags
from nvtrader_pipelines.service.due_notifications import notify
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.settings import apply_executor

if TYPE_CHECKING:
    from nvtrader_pipelines.service.progress_display import OnProgress
    from nvtrader_pipelines.storage.store import Store

Function = TypeVar("Function", bound=Callable[..., Any])
SECTIONS = ("\n\nReturns:", "\n\nRaises:")  # of a docstring; for programs only
AT_LEAST_ONE = "at least one"  # mark of arguments of any number, of which a command needs one
BOUNDS = ("ge", "gt", "le", "lt")


@dataclass(frozen=True)
class Parameter:
    """Parameter of an operation, or field of its settings; a command has it as an argument or an option."""

    name: str
    kind: Any  # type; X of `X | None`
    marks: tuple[Any, ...]  # of Pydantic, and `Flags`
    default: Any  # `inspect.Parameter.empty` if it is required
    is_option: bool
    is_several: bool = False  # any number of arguments

    @classmethod
    def of(cls, own: inspect.Parameter) -> "Parameter":
        """Parameter of a signature."""
        marks = getattr(own.annotation, "__metadata__", ())
        kind = own.annotation.__origin__ if marks else own.annotation
        kind = Any if isinstance(kind, ForwardRef) else kind  # of type checkers only
        alternatives = [one for one in get_args(kind) if one is not type(None)] if get_origin(kind) is not tuple else []
        kind = Path if Path in alternatives else alternatives[0] if type(None) in get_args(kind) else kind
        if own.kind is own.VAR_POSITIONAL:
            default = own.empty if AT_LEAST_ONE in marks else ()
            return cls(own.name, tuple[kind, ...], marks, default, is_option=False, is_several=True)
        return cls(own.name, kind, marks, own.default, own.kind is own.KEYWORD_ONLY)

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty

    @property
    def description(self) -> str:
        """Text that explains it at every door."""
        texts = [mark.description for mark in self.marks if isinstance(mark, FieldInfo) and mark.description]
        return texts[-1] if texts else ""

    @property
    def is_local(self) -> bool:
        """Whether it is of this machine only, and no route takes it."""
        return Path in (self.kind, *get_args(self.kind)) or any(
            isinstance(mark, FieldInfo) and mark.exclude for mark in self.marks
        )

    @property
    def field(self) -> tuple[Any, Any]:
        """Annotation and default as a field of a model."""
        kind = self.kind if self.default is not None else self.kind | None
        if self.is_several:
            kind = tuple[Annotated[get_args(kind)[0], *self.marks], ...]
            return Annotated[kind, Field(min_length=int(self.is_required))], ... if self.is_required else ()
        annotation = Annotated[kind, *self.marks] if self.marks else kind
        return annotation, ... if self.is_required else self.default

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of its option."""
        marked = [mark.names for mark in self.marks if isinstance(mark, Flags)]
        return marked[0] if marked else (f"--{self.name.replace('_', '-')}",)

    @property
    def bounds(self) -> Mapping[str, Any]:
        """Bounds of a number by the name of Pydantic's."""
        constraints = [one for mark in self.marks for one in (*getattr(mark, "metadata", ()), mark)]
        return {
            name: getattr(one, name) for one in constraints for name in BOUNDS if getattr(one, name, None) is not None
        }


@dataclass(frozen=True)
class Operation:
    """Values by which the doors offer a use case."""

    function: Callable[..., Any]
    examples: tuple[str, ...]  # command lines
    command: str = ""  # words of the command where they are not those of the family and the method
    route: str = ""  # method and path with the parameters that it names; empty: none
    is_kept: bool = False  # a route's answer, until a source of it changes
    writes: bool = False  # a route needs the token; then views are published, and due notifications sent
    is_long: bool = False  # minutes: a route launches it in Dagster, a command runs it in its own process

    @cached_property
    def text(self) -> str:
        """What it does, for people."""
        text = inspect.cleandoc(self.function.__doc__ or "")
        return min((text.partition(section)[0] for section in SECTIONS), key=len)

    @property
    def is_frame(self) -> bool:
        """Whether it returns rows."""
        return "DataFrame" in str(self.function.__annotations__["return"])

    @cached_property
    def returns(self) -> Any:
        """Type of the document, imported where only type checkers import it."""
        module, text = inspect.getmodule(self.function), self.function.__annotations__["return"]
        if not isinstance(text, str):
            return text
        checked = _checked_imports(inspect.getsource(module)) if module else {}
        names = {name: import_module(checked[name]) for name in re.findall(r"\w+", text) if name in checked}
        names = {name: getattr(source, name, source) for name, source in names.items()}
        carrier = type("_", (), {"__annotations__": {"return": text}})
        return get_type_hints(carrier, {**vars(module), **names}, include_extras=True)["return"]

    @property
    def row(self) -> Any:
        """Type of a row where it returns a frame; None if it is not known."""
        return getattr(self.returns, "__metadata__", (None,))[0]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters, without the family."""
        _, *own = self.signature.parameters.values()
        return tuple(map(Parameter.of, own))

    @cached_property
    def signature(self) -> inspect.Signature:
        """Signature of the method."""
        return inspect.signature(self.function)

    @cached_property
    def model(self) -> type[BaseModel]:
        """Model of its arguments."""
        fields: Any = {parameter.name: parameter.field for parameter in self.parameters}
        return create_model(self.function.__name__, **fields)

    def validated(self, family: "Family", *args: Any, **options: Any) -> inspect.BoundArguments:
        """Bind arguments, each of its type and within its bounds.

        Raises:
            StorageError: if one is not.
        """
        from nvtrader_pipelines.storage.documents import validate_document  # imports YAML

        bound = self.signature.bind(family, *args, **options)
        given = dict(list(bound.arguments.items())[1:])
        arguments = validate_document(given, self.model, f"the arguments of {self.function.__name__} are not valid")
        bound.arguments.update({name: getattr(arguments, name) for name in given})
        return bound

    def call(self, family: "Family", arguments: Mapping[str, Any]) -> Any:
        """Call it with arguments by name."""
        method, options, words = getattr(family, self.function.__name__), dict(arguments), []
        for parameter in self.parameters:
            if not parameter.is_option and parameter.name in options:
                value = options.pop(parameter.name)
                words += value if parameter.is_several else [value]
        return method(*words, **options)


def _checked_imports(source: str) -> Mapping[str, str]:
    """Modules of the names that a module imports for type checkers."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body]
    named = [(alias.name, node.module) for node in imports if isinstance(node, ast.ImportFrom) for alias in node.names]
    whole = [(alias.asname, alias.name) for node in imports if isinstance(node, ast.Import) for alias in node.names]
    return {str(name): str(module) for name, module in (*named, *whole)}


class Family:
    """Operations on things of one kind; the first line of its docstring is the help of its commands."""

    command: ClassVar[str] = ""  # group of commands; empty: commands of the root
    examples: ClassVar[tuple[str, ...]] = ()  # of the group
    alone: ClassVar[str] = ""  # operation of the group without a command

    def __init__(self, home: OpenHome) -> None:
        """Bind the operations to a home."""
        self.opened, self.store = home, home.store
        self.notes: Sequence[str] = ()  # what a command says beside its last answer

    def publish(self, *, notifies: bool = True) -> None:
        """Publish the views if there are any, and send due notifications.

        The work is done, so views that cannot be published are a warning.
        """
        if self.store.home.duckdb_file.exists():
            from nvtrader_pipelines.service.consoles import warn
            from nvtrader_pipelines.storage.views.publishing import publish

            try:
                publish(self.store)
            except (StorageError, OSError) as error:
                warn(f"the views are not published: {error}")
        if notifies:
            notify(self.store)

    def current_store(self) -> "Store":
        """Store in which runs whose process has ended are marked as interrupted; the service does so by itself."""
        ledger = self.store.ledger
        if not self.opened.is_served:
            ledger.close_interrupted()
            running = ledger.runs(with_worlds=True).filter(status="running")
            if len(running["dagster_run_id"].drop_nulls()):  # only Dagster knows theirs
                from nvtrader_pipelines.orchestration.instance import open_instance  # takes seconds

                open_instance(self.store).dispose()
        return self.store

    @contextmanager
    def _progress(self) -> "Iterator[OnProgress]":
        """Yield a function that shows the progress of long work on the terminal, unless the home is quiet."""
        from nvtrader_pipelines.service.consoles import wide_console
        from nvtrader_pipelines.service.library_noise import silence_libraries
        from nvtrader_pipelines.service.progress_display import show_progress

        with silence_libraries(), show_progress(wide_console(), quiet=self.opened.is_quiet) as on_progress:
            yield on_progress


def operation(*examples: str, **values: Any) -> Callable[[Function], Function]:
    """Make a method of a family a use case of every door, with the values of `Operation`."""

    def decorate(function: Function) -> Function:
        own = Operation(function, examples, **values)

        @wraps(function)
        def run(family: Family, *args: Any, **options: Any) -> Any:
            checked = own.validated(family, *args, **options)
            apply_executor(family.store.home)  # at each call, since a program may have several homes open
            result = function(*checked.args, **checked.kwargs)
            if own.writes:
                family.publish(notifies=not own.is_long)  # a long command notifies at its end
            return result

        run.operation = own  # pyright: ignore[reportAttributeAccessIssue] - read by `operations_of`
        return cast("Function", run)

    return decorate


def operations_of(family: type[Family]) -> Mapping[str, Operation]:
    """Operations of a family by the names of their methods, in order."""
    return {name: method.operation for name, method in vars(family).items() if hasattr(method, "operation")}
