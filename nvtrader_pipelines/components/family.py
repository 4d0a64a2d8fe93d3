"""Families of components: own members, and the parts that installed packages add."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from nvtrader_pipelines.components.component import Component, aliases_of, kind_of, members

GROUP = "nvtrader_pipelines.components"  # entry points of installed packages, named <family>.<kind>
Member = type[Component]
Method = TypeVar("Method", bound=Callable[..., Any])


class PartError(ValueError):
    """Part of an installed package that cannot be used."""


class InstalledParts(NamedTuple):
    """Parts of installed packages in a family, and the problem of each that cannot be used."""

    usable: dict[str, Member]  # by kind
    problems: list[str]


class Family:
    """Annotation that opens a discriminated union to the parts of installed packages and to aliases of its kinds.

    A package is imported only when a document names its part, or when parts are listed. An alias becomes its kind
    before validation, so that no spec holds one.
    """

    def __init__(self, name: str) -> None:
        self.name = name  # plural, as `nvtrader components` lists it
        self._own: tuple[Member, ...] = ()
        self._kinds: dict[str, str] = {}  # of own members, by alias

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate and serialize own members by the union, and parts by their class."""
        self._own = get_args(source)
        self._kinds = kinds_by_alias(self._own)
        schema = handler(source)
        serialization = core_schema.wrap_serializer_function_ser_schema(self._serialize, info_arg=True, schema=schema)
        return core_schema.no_info_wrap_validator_function(self._validate, schema, serialization=serialization)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema of the union with the parts of installed packages."""
        family_schema, parts = handler(schema), installed_parts(self.name, self._own).usable
        if parts:
            choices = {kind: part.__pydantic_core_schema__ for kind, part in parts.items()}
            added = handler(core_schema.tagged_union_schema(choices, discriminator="kind"))
            family_schema["oneOf"].extend(added["oneOf"])
            family_schema["discriminator"]["mapping"].update(added["discriminator"]["mapping"])
        return family_schema

    def _validate(self, data: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        kind = data.get("kind") if isinstance(data, Mapping) else getattr(data, "kind", None)
        part = None
        if isinstance(data, Mapping) and isinstance(kind, str) and kind in self._kinds:
            data = {**data, "kind": self._kinds[kind]}
        elif isinstance(kind, str) and kind not in map(kind_of, self._own):
            part = _find_part(self.name, kind, self._own)
        return handler(data) if part is None else _union_with(self._own[0], part).validate_python(data)

    def _serialize(self, value: Any, handler: Callable[[Any], Any], info: SerializationInfo) -> Any:
        if isinstance(value, Component) and type(value) not in self._own:
            return value.model_dump(mode=info.mode, exclude_defaults=info.exclude_defaults)
        return handler(value)


def optional(method: Method) -> Method:
    """Mark a method of own members that parts of installed packages may lack."""
    vars(method)["is_optional"] = True
    return method


def kinds_by_alias(own: Sequence[Member]) -> dict[str, str]:
    """Kinds of the members of a family by their aliases."""
    return {alias: kind_of(member) for member in own for alias in aliases_of(member)}


def every_member(family: Any) -> tuple[Member, ...]:
    """Classes of a family: its own members, then usable parts of installed packages."""
    return (*members(family), *parts_of_family(family).usable.values())


def is_open(family: Any) -> bool:
    """Whether installed packages may add members to a family."""
    return any(isinstance(argument, Family) for argument in get_args(family)[1:])


def parts_of_family(family: Any) -> InstalledParts:
    """Parts of installed packages in a family; none if the family is closed."""
    names = [argument.name for argument in get_args(family)[1:] if isinstance(argument, Family)]
    return installed_parts(names[0], members(family)) if names else InstalledParts({}, [])


def installed_parts(family: str, own: Sequence[Member]) -> InstalledParts:
    """Import the parts of installed packages in a family with these own members."""
    usable: dict[str, Member] = {}
    problems: list[str] = []
    for name in dict.fromkeys(entry.name for entry in part_entry_points()):
        prefix, _, kind = name.rpartition(".")
        if prefix != family:
            continue
        try:
            part = _find_part(family, kind, own)
        except PartError as error:
            problems.append(str(error))
        else:
            usable |= {} if part is None else {kind: part}
    return InstalledParts(usable, problems)


@cache
def part_entry_points() -> tuple[EntryPoint, ...]:
    """Entry points of installed packages in the group of components."""
    return tuple(entry_points(group=GROUP))


def failure_reason(error: Exception) -> str:
    """Describe an exception of a package's own code in one line, with the cure where it wrote into the market."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if "read-only" not in reason:  # in every message of NumPy about a write
        return reason
    return f"{reason}: arrays of the market cannot be changed, so write to a copy (`panel.close_returns.copy()`)"


def package_of(entry: EntryPoint) -> str:
    """Name of the installed package that declares an entry point."""
    return entry.dist.name if entry.dist is not None else entry.module


@cache
def _find_part(family: str, kind: str, own: Sequence[Member]) -> Member | None:
    """Import the part of a kind, or return None if no installed package has it.

    Raises:
        PartError: if the part cannot be used.
    """
    entries = [entry for entry in part_entry_points() if entry.name == f"{family}.{kind}"]
    if not entries:
        return None
    if len(entries) > 1:
        packages = " and ".join(sorted(map(package_of, entries)))
        raise PartError(f"the packages {packages} must not both have the part {family}.{kind}; uninstall one of them")
    (entry,) = entries
    try:
        part = entry.load()
    except Exception as error:  # a package's own code
        raise _part_error(entry, f"must be importable, but {entry.value} is not ({failure_reason(error)})") from error
    problem = _problem(part, family, kind, own)
    if problem is not None:
        raise _part_error(entry, problem)
    return part


def _part_error(entry: EntryPoint, problem: str) -> PartError:
    package = package_of(entry)
    return PartError(f"the part {entry.name} of package {package} {problem}; repair or uninstall {package}")


def _problem(part: Any, family: str, kind: str, own: Sequence[Member]) -> str | None:
    """Reason why an imported object is no member of a family, or None."""
    if not (isinstance(part, type) and issubclass(part, Component)):
        return f"must be a subclass of Component, but is {part!r}"
    found = kind_of(part) if "kind" in part.model_fields else None
    if found != kind:
        return f"must be named after the kind of its class, but that of {part.__name__} is {found!r}"
    if kind in {*map(kind_of, own), *kinds_by_alias(own)}:
        return f"must have a kind of its own, but {kind!r} is taken by nvtrader_pipelines"
    bases = _bases(own)
    if bases and not issubclass(part, bases):
        names = " or ".join(sorted(base.__name__ for base in bases))
        return f"must be a subclass of {names}, as all {family} are, but {part.__name__} is not"
    missing = sorted(set.intersection(*map(_interface, own)) - _interface(part))
    if missing:
        return f"must have {', '.join(missing)}, as all {family} have, but {part.__name__} has not"
    return None


def _bases(own: Sequence[Member]) -> tuple[Member, ...]:
    """Base classes of the members directly below Component; none if a member has none."""
    bases = [tuple(base for base in member.__mro__[1:] if Component in base.__bases__) for member in own]
    return tuple({base for values in bases for base in values}) if all(bases) else ()


def _interface(member: Member) -> set[str]:
    """Public fields, properties and methods of a member beyond those of any component, without optional ones."""
    names = {name for name in {*dir(member), *member.model_fields} if not name.startswith("_")} - set(dir(Component))
    return {name for name in names if not hasattr(getattr(member, name, None), "is_optional")}


@cache
def _union_with(own: Member, part: Member) -> TypeAdapter[Any]:
    """Adapter of a union with the part, so that errors name its kind as for own members."""
    return TypeAdapter(Annotated[own | part, Field(discriminator="kind")])
