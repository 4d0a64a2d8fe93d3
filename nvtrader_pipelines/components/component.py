"""A configurable component: a frozen spec whose content is its identity."""

import ast
import hashlib
import inspect
import io
import json
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Self, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError


def _converted(given: Any, found: Any, loc: tuple[str | int, ...]) -> Iterator[InitErrorDetails]:
    """Values of which pydantic made another type: numbers and truth values of each other, whole numbers of text."""
    if isinstance(found, tuple):
        given, found = dict(enumerate(given)), dict(enumerate(found))
    if isinstance(found, dict):
        for key, value in found.items():
            yield from _converted(given[key], value, (*loc, key))
    elif isinstance(given, bool) != isinstance(found, bool) or (isinstance(given, str) and isinstance(found, int)):
        wrong = PydanticCustomError("wrong_type", "Input should not be a truth value for a number, nor the reverse")
        yield InitErrorDetails(type=wrong, loc=loc, input=given)


class Component(BaseModel):
    """A frozen choice with defaults; unknown fields, wrong types and non-finite numbers are refused.

    Text is no whole number, and a truth value no number at all. 3.0 is the whole number 3, and the text 1e-3 is a
    float, since YAML 1.1 reads that number as text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @model_validator(mode="wrap")
    @classmethod
    def _types_are_kept(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        component = handler(data)
        if isinstance(data, Mapping):
            wrong = [each for name in data for each in _converted(data[name], getattr(component, name), (name,))]
            if wrong:
                raise ValidationError.from_exception_data(cls.__name__, wrong)
        return component

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Its JSON Schema, with the comment of each field, and its kind required as it is where one is chosen."""
        found = handler(schema)
        own = handler.resolve_ref_schema(found)
        for name, comment in field_comments(cls).items():
            own["properties"][name]["description"] = comment
        if "kind" in own["properties"]:
            own["required"] = sorted({"kind", *own.get("required", ())})
        return found


def canonical_json(component: BaseModel) -> str:
    """The component as JSON with defaults included, keys sorted and floats in their shortest exact form.

    Numbers of an integer field have no point and those of a float field always do; zero has no sign.
    """
    content = _unsigned_zeros(component.model_dump(mode="json"))
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def content_hash(component: BaseModel) -> str:
    """SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(component).encode()).hexdigest()


def members(family: Any) -> tuple[type[Component], ...]:
    """The classes of a family, which is a discriminated union or a union of one."""
    union = get_args(family)[0]
    return get_args(union) or (union,)


@cache
def field_comments(component: type[Component]) -> dict[str, str]:
    """What the comment beside each field says of it, such as its unit; nothing where the source is not there."""
    found: dict[str, str] = {}
    for parent in reversed(component.__mro__):
        if issubclass(parent, Component) and parent is not Component:
            found |= _comments(parent)
    return {name: found[name] for name in component.model_fields if name in found}


def _comments(component: type[Component]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(component))
    except (OSError, TypeError):  # made at run time
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
    """The name by which a document chooses the member."""
    return member.model_fields["kind"].default


def _unsigned_zeros(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _unsigned_zeros(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_unsigned_zeros(value) for value in content]
    return content + 0.0 if isinstance(content, float) else content  # -0.0 + 0.0 is 0.0
