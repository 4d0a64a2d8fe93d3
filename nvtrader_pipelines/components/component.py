"""Configurable component: a frozen spec whose content is its identity."""

import ast
import hashlib
import inspect
import io
import json
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any, ClassVar, Self, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, to_jsonable_python


def _conversion_errors(data: Any, found: Any, loc: tuple[str | int, ...]) -> Iterator[InitErrorDetails]:
    """Yield errors for values converted between booleans and numbers, or from text to integers."""
    if isinstance(found, tuple):
        data, found = dict(enumerate(data)), dict(enumerate(found))
    if isinstance(found, dict):
        for key, value in found.items():
            yield from _conversion_errors(data[key], value, (*loc, key))
    elif isinstance(data, bool) != isinstance(found, bool) or (isinstance(data, str) and isinstance(found, int)):
        wrong = PydanticCustomError("wrong_type", "Input should not be a boolean for a number, nor the reverse")
        yield InitErrorDetails(type=wrong, loc=loc, input=data)


class Component(BaseModel):
    """Frozen choice with defaults; rejects unknown fields, wrong types and non-finite numbers.

    Neither text nor a boolean is accepted as an integer, nor a boolean as a float. 3.0 is the integer 3, and the text
    "1e-3" is a float, since YAML 1.1 reads that number as text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)
    aliases: ClassVar[tuple[str, ...]] = ()  # other names of `kind` that documents may use

    @model_validator(mode="wrap")
    @classmethod
    def _reject_conversions(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        component = handler(data)
        if isinstance(data, Mapping):
            parts = (_conversion_errors(data[name], getattr(component, name), (name,)) for name in data)
            errors = list(chain.from_iterable(parts))
            if errors:
                raise ValidationError.from_exception_data(cls.__name__, errors)
        return component

    def require_experiment(self, spec: Any, field: str) -> None:
        """Raise if the rest of the experiment does not suit the component; most suit any.

        Args:
            spec: experiment, an `ExperimentSpec` whose parts are valid by themselves.
            field: path of the component in it.

        Raises:
            ValueError: with the field, what it has, and what to do.
        """

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema with field comments as descriptions and `kind` required."""
        schema_of_kind = handler(schema)
        own = handler.resolve_ref_schema(schema_of_kind)
        for name, comment in field_comments(cls).items():
            own["properties"][name]["description"] = comment
        if "kind" in own["properties"]:
            own["required"] = sorted({"kind", *own.get("required", ())})
        return schema_of_kind


def canonical_json(component: BaseModel) -> str:
    """Component as JSON with defaults, sorted keys and floats in their shortest exact form.

    Integer fields have no decimal point, float fields always do; zero has no sign.
    """
    content = _drop_zero_signs(component.model_dump(mode="json"))
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def whole_document(value: Any) -> Any:
    """Value as JSON, a component with every field, also those that its dump leaves out at their default."""
    if isinstance(value, BaseModel):
        return {name: whole_document(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {name: whole_document(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [whole_document(part) for part in value]
    return to_jsonable_python(value)


def content_hash(component: BaseModel) -> str:
    """SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(component).encode()).hexdigest()


def members(family: Any) -> tuple[type[Component], ...]:
    """Classes of a family, which is a discriminated union or a union of one."""
    union = get_args(family)[0]
    return get_args(union) or (union,)


@cache
def field_comments(component: type[Component]) -> dict[str, str]:
    """Comment beside each field, such as its unit; empty where the source code is unavailable."""
    comments: dict[str, str] = {}
    for parent in reversed(component.__mro__):
        if issubclass(parent, Component) and parent is not Component:
            comments |= _comments(parent)
    return {name: comments[name] for name in component.model_fields if name in comments}


def _comments(component: type[Component]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(component))
    except (OSError, TypeError):  # created at run time
        return {}
    (definition,) = ast.parse(source).body
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# pyright", "# type"))
    }
    return {
        field.target.id: " ".join(comments[line] for line in _lines(field) if line in comments)
        for field in cast("ast.ClassDef", definition).body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and comments.keys() & {*_lines(field)}
    }


def _lines(node: ast.AnnAssign) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def kind_of(member: type[Component]) -> str:
    """Value of `kind` that selects the member in a document."""
    return member.model_fields["kind"].default


def aliases_of(member: type[Component]) -> tuple[str, ...]:
    """Other names of the member's kind that documents may use; a subclass does not inherit them."""
    return vars(member).get("aliases", ())


def kind_named(name: Any) -> Any:
    """Kind that a document names: that of the component with this alias, else the name itself."""
    return next((kind_of(member) for member in _subclasses(Component) if name in aliases_of(member)), name)


def _subclasses(component: type[Component]) -> Iterator[type[Component]]:
    for subclass in component.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _drop_zero_signs(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _drop_zero_signs(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_drop_zero_signs(value) for value in content]
    return content + 0.0 if isinstance(content, float) else content  # -0.0 + 0.0 is 0.0
