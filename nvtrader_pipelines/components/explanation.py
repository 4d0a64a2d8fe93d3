"""Explanations of invalid documents: place, value found, values allowed, nearest name."""

import json
import reprlib
from collections.abc import Callable, Sequence
from datetime import date
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from nvtrader_pipelines.components.json_schema import Node, Place, describe_allowed, field_names, kinds, locate

Written = Callable[[tuple[str | int, ...], Any], str | None]
KEY = "[key]"  # last of the location of a key, as Pydantic writes it
MAX_EXPLAINED = 100  # problems that are explained; the rest is only counted
MAX_PROBLEMS = 3  # problems in a message; further ones are only counted
MAX_VALUE_LENGTH = 60  # characters of a value in a message
_REPR = reprlib.Repr()  # of bounded length: YAML's aliases can nest a list a billion times
_REPR.maxlevel, _REPR.maxlist, _REPR.maxstring = 4, 10, 100


def explain(error: ValidationError, model: Any, written: Written = lambda *_: None) -> str:
    """Explain in one line why a document is no valid `model`, a class or a union: the first three problems.

    `written` looks up how a value at a location is written in the document, if that is known.
    """
    problems = error.errors(include_url=False)
    roots = _root_problems(problems[:MAX_EXPLAINED], _schema(model))
    sentences = list(dict.fromkeys(_explain_problem(problem, _schema(model), written) for problem in roots))
    n_problems = len(sentences) + len(problems[MAX_EXPLAINED:])
    if n_problems == 1:
        return sentences[0]
    count = f"{n_problems} problems" + (f", of which the first {MAX_PROBLEMS} are" if n_problems > MAX_PROBLEMS else "")
    return f"{count}: " + "; ".join(
        f"({number}) {text}" for number, text in enumerate(sentences[:MAX_PROBLEMS], start=1)
    )


def problems_by_field(error: ValidationError, model: type[BaseModel]) -> dict[str, str]:
    """Explain why a document is no valid `model`: a sentence per dotted path, empty for the whole document."""
    problems = _root_problems(error.errors(include_url=False)[:MAX_EXPLAINED], _schema(model))
    return {
        locate(_schema(model), problem["loc"]).path: _explain_problem(problem, _schema(model), lambda *_: None)
        for problem in reversed(problems)
    }


@cache
def _schema(model: Any) -> Node:
    return TypeAdapter(model).json_schema()


def _root_problems(problems: Sequence[ErrorDetails], schema: Node) -> list[ErrorDetails]:
    """Drop problems that follow from others, as a default that needs another field, or a mapping that is no number."""

    def has_deeper(location: tuple[str | int, ...], depth: int) -> bool:
        return any(len(other["loc"]) > depth and other["loc"][: len(location)] == location for other in problems)

    def is_consequence(problem: ErrorDetails) -> bool:
        location, depth = problem["loc"], len(problem["loc"])
        in_mapping = "anyOf" in locate(schema, location[:-1]).node and has_deeper(location[:-1], depth)
        of_items = problem["type"] == "too_short" and has_deeper(location, depth)
        return problem["input"] is PydanticUndefined or of_items or in_mapping

    return [problem for problem in problems if not is_consequence(problem)]


def _explain_problem(problem: ErrorDetails, schema: Node, written: Written) -> str:
    if problem["type"] == "invalid_key" or problem["loc"][-1:] == (KEY,):
        return _wrong_key(problem, schema, written)
    place = locate(schema, problem["loc"])
    match problem["type"]:
        case "value_error":  # message of the component's own validator
            return _at(place.path, problem["msg"].removeprefix("Value error, "))
        case "extra_forbidden":
            names = field_names(place.owner)
            unknown = str(problem["loc"][-1])
            near = suggest(unknown, names) or ";"
            return _at(place.path, f"there is no field {unknown!r}{near} allowed are {', '.join(names)}")
        case "union_tag_invalid":
            tag, names = problem["input"]["kind"], kinds(place.node)
            text = f"found {format_value(tag)}, but must be one of {', '.join(names)}{suggest(str(tag), names)}"
            return _at(_kind_of(place), text)
        case "union_tag_not_found":
            return _at(_kind_of(place), f"is missing; must be one of {', '.join(kinds(place.node))}")
        case _:
            return _at(place.path, _wrong_value(problem, schema, place, written))


def _wrong_key(problem: ErrorDetails, schema: Node, written: Written) -> str:
    depth = len(problem["loc"]) - (2 if problem["loc"][-1] == KEY else 1)
    mapping, key = problem["loc"][:depth], problem["input"]
    text = f"found the key {format_value(key)}, but keys must be text{unquoted(key, written((*mapping, KEY), key))}"
    return _at(locate(schema, mapping).path, text)


def _wrong_value(problem: ErrorDetails, schema: Node, place: Place, written: Written) -> str:
    must = describe_allowed(schema, place.node)
    if problem["type"] == "missing":
        return f"is missing; must be {must}"
    value = problem["input"]
    near = suggest(value, place.node.get("enum", ())) if isinstance(value, str) else ""
    if "enum" in place.node or place.node.get("type") == "string":
        near = near or unquoted(value, written(problem["loc"], value))
    return (
        f"found {format_value(value)}, but must be {must}{near}"
        if must
        else f"found {format_value(value)}: {problem['msg']}"
    )


def unquoted(value: Any, text: str | None) -> str:
    """Return the cure for a value of another type than text: quotes around it as written; else an empty text."""
    if not isinstance(value, bool | int | float | date):
        return ""
    if not text:
        return "; write it in quotes"
    kind = "" if isinstance(value, bool) else "the date " if isinstance(value, date) else "the number "
    return f": YAML reads {text} as {kind}{format_value(value)}; write '{text}' in quotes"


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _kind_of(place: Place) -> str:
    return f"{place.path}.kind" if place.path else "kind"


def suggest(name: str, names: Sequence[str]) -> str:
    """Return `; did you mean …?` with the nearest name, or an empty text if none is near."""
    near = get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def format_value(value: Any) -> str:
    """Format a value as people write it in YAML, on one line of limited length."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value) if isinstance(value, date) else _REPR.repr(value) if isinstance(value, list) else repr(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"
