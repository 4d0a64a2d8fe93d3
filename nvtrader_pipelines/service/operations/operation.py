"""Use cases as methods of a home, with the values by which every door offers them."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, get_args, get_type_hints

from pydantic.fields import FieldInfo

from nvtrader_pipelines.components.marks import Flags
from nvtrader_pipelines.service.due_notifications import notify
from nvtrader_pipelines.service.open_home import OpenHome

if TYPE_CHECKING:
    from nvtrader_pipelines.service.progress_display import OnProgress

Function = TypeVar("Function", bound=Callable[..., Any])
SECTIONS = ("\n\nReturns:", "\n\nRaises:")  # of a docstring; for programs only
BOUNDS = ("ge", "gt", "le", "lt")


@dataclass(frozen=True)
class Parameter:
    """Parameter of an operation, or field of its settings; a command has it as an argument or an option."""

    name: str
    kind: Any  # type; X of `X | None`
    marks: tuple[Any, ...]  # of Pydantic, and `Flags`
    default: Any  # `inspect.Parameter.empty` if it is required
    is_option: bool

    @classmethod
    def of(cls, name: str, annotation: Any, default: Any, *, is_option: bool) -> "Parameter":
        """Parameter of an annotation."""
        marks = getattr(annotation, "__metadata__", ())
        kind = annotation.__origin__ if marks else annotation
        alternatives = [one for one in get_args(kind) if one is not type(None)]
        return cls(name, alternatives[0] if type(None) in get_args(kind) else kind, marks, default, is_option)

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
    route: str = ""  # method and path with the parameters that it names; empty: none
    reads: tuple[str, ...] = ()  # groups of files whose change makes a kept answer stale
    writes: bool = False  # a route needs the token; then views are published, and due notifications sent
    is_long: bool = False  # minutes: a route launches it in Dagster, a command runs it in its own process
    repairs: bool = False  # works on a home with damaged files, too

    @cached_property
    def text(self) -> str:
        """What it does, for people."""
        text = inspect.cleandoc(self.function.__doc__ or "")
        return min((text.partition(section)[0] for section in SECTIONS), key=len)

    @property
    def is_frame(self) -> bool:
        """Whether it returns rows."""
        return "DataFrame" in self.function.__annotations__["return"]

    @cached_property
    def returns(self) -> Any:
        """Type of the document, imported where only type checkers import it; a frame is a tuple of its rows."""
        module, text = inspect.getmodule(self.function), self.function.__annotations__["return"]
        checked = _checked_imports(inspect.getsource(module)) if module else {}
        names = {name: import_module(checked[name]) for name in re.findall(r"\w+", text) if name in checked}
        names = {name: getattr(source, name, source) for name, source in names.items()}
        carrier = type("_", (), {"__annotations__": {"return": text}})
        kind = get_type_hints(carrier, {**vars(module), **names}, include_extras=True)["return"]
        return tuple[kind.__metadata__[0], ...] if self.is_frame else kind

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters, without the family."""
        _, *own = inspect.signature(self.function).parameters.values()
        return tuple(
            Parameter.of(one.name, one.annotation, one.default, is_option=one.kind is one.KEYWORD_ONLY) for one in own
        )


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
        self.home, self.store = home, home.store
        self.notes: Sequence[str] = ()  # what a command says beside its last answer

    @contextmanager
    def _progress(self) -> "Iterator[OnProgress]":
        """Yield a function that shows the progress of long work on the terminal, unless the home is quiet."""
        from nvtrader_pipelines.service.consoles import wide_console
        from nvtrader_pipelines.service.library_noise import silence_libraries
        from nvtrader_pipelines.service.progress_display import show_progress

        with silence_libraries(), show_progress(wide_console(), quiet=self.home.is_quiet) as on_progress:
            yield on_progress


def operation(*examples: str, **values: Any) -> Callable[[Function], Function]:
    """Make a method of a family a use case of every door, with the values of `Operation`."""

    def decorate(function: Function) -> Function:
        own = Operation(function, examples, **values)

        @wraps(function)
        def run(family: Family, *args: Any, **options: Any) -> Any:
            result = function(family, *args, **options)
            if own.writes and family.store.home.duckdb_file.exists():
                from nvtrader_pipelines.storage.views.publishing import publish

                publish(family.store)
            if own.writes and not own.is_long:  # its command notifies at its end
                notify(family.store)
            return result

        run.operation = own  # pyright: ignore[reportAttributeAccessIssue] - read by `operations_of`
        return cast("Function", run)

    return decorate


def operations_of(family: type[Family]) -> Mapping[str, Operation]:
    """Operations of a family by the names of their methods, in order."""
    return {name: method.operation for name, method in vars(family).items() if hasattr(method, "operation")}
