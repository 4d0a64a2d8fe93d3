"""Why a document is not valid: where, what was found, what is allowed, and the nearest name."""

import json
from collections.abc import Sequence
from datetime import date
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from nvtrader_pipelines.components.json_schema import Node, Place, allowed, field_names, kinds, locate

SHOWN = 3  # problems that are told; more are only counted
LONGEST = 60  # characters of a value that was found


def explained(error: ValidationError, model: type[BaseModel]) -> str:
    """The problems of a document that should be a `model`, in one line; the first three and how many there are."""
    problems = _own(error.errors(include_url=False))
    found = list(dict.fromkeys(_explained(problem, _schema(model)) for problem in problems))
    if len(found) == 1:
        return found[0]
    count = f"{len(found)} problems" + (f", of which the first {SHOWN} are" if len(found) > SHOWN else "")
    return f"{count}: " + "; ".join(f"({number}) {text}" for number, text in enumerate(found[:SHOWN], start=1))


@cache
def _schema(model: type[BaseModel]) -> Node:
    return model.model_json_schema()


def _own(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The problems without those that follow from others: a default that needs another field, a list cut short."""

    def follows(problem: ErrorDetails) -> bool:
        depth = len(problem["loc"])
        inside = [other for other in problems if len(other["loc"]) > depth and other["loc"][:depth] == problem["loc"]]
        return problem["input"] is PydanticUndefined or (problem["type"] == "too_short" and bool(inside))

    return [problem for problem in problems if not follows(problem)]


def _explained(problem: ErrorDetails, schema: Node) -> str:
    place = locate(schema, problem["loc"])
    match problem["type"]:
        case "value_error":  # a sentence of the component's own
            return _at(place.path, problem["msg"].removeprefix("Value error, "))
        case "extra_forbidden":
            names = field_names(place.owner)
            unknown = str(problem["loc"][-1])
            near = nearest(unknown, names) or ";"
            return _at(place.path, f"there is no field {unknown!r}{near} allowed are {', '.join(names)}")
        case "union_tag_invalid":
            tag, names = problem["input"]["kind"], kinds(place.node)
            text = f"found {shown(tag)}, but must be one of {', '.join(names)}{nearest(str(tag), names)}"
            return _at(_kind_of(place), text)
        case "union_tag_not_found":
            return _at(_kind_of(place), f"is missing; must be one of {', '.join(kinds(place.node))}")
        case "invalid_key":
            return _at(place.path, f"found the key {shown(problem['loc'][-1])}, but keys must be text")
        case _:
            return _at(place.path, _wrong_value(problem, schema, place))


def _wrong_value(problem: ErrorDetails, schema: Node, place: Place) -> str:
    must = allowed(schema, place.node)
    if problem["type"] == "missing":
        return f"is missing; must be {must}"
    found = problem["input"]
    near = nearest(found, place.node.get("enum", ())) if isinstance(found, str) else ""
    return f"found {shown(found)}, but must be {must}{near}" if must else f"found {shown(found)}: {problem['msg']}"


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _kind_of(place: Place) -> str:
    return f"{place.path}.kind" if place.path else "kind"


def nearest(name: str, names: Sequence[str]) -> str:
    """A question after the name that was meant; empty if none is near."""
    near = get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: Any) -> str:
    """A value as people write it, on one line and not too long."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value) if isinstance(value, date) else repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
