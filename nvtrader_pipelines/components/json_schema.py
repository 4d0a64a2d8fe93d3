"""What the JSON Schema of a document says of one place in it: its dotted path, and what is allowed there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Node = dict[str, Any]  # a part of a JSON Schema
_BOUNDS = {"minimum": "of at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


@dataclass(frozen=True)
class Place:
    """A place in a document."""

    path: str  # dotted, without the kinds that were chosen on the way
    node: Node  # what is allowed there; empty where nothing is known
    owner: Node  # the mapping or list that holds it


def locate(schema: Node, location: Sequence[str | int]) -> Place:
    """The place of a validation error's location, which names the kind of every component on the way."""
    path: list[str] = []
    node, owner = resolved(schema, schema), schema
    for part in location:
        if part in _kinds(node):
            node = resolved(schema, {"$ref": _kinds(node)[str(part)]})
            continue
        if "anyOf" in node:  # the validator's name of a choice, such as float
            continue
        path.append(str(part))
        node, owner = resolved(schema, _inside(node, part)), node
    return Place(".".join(path), node, owner)


def resolved(schema: Node, node: Node) -> Node:
    """The node without references, and of one that may be null what else it may be."""
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        return {**resolved(schema, choices[0]), "nullable": True}
    return node


def field_names(node: Node) -> list[str]:
    """The fields of a mapping, in the order of the alphabet."""
    return sorted(node.get("properties", {}))


def kinds(node: Node) -> list[str]:
    """The kinds of component allowed, in the order of the alphabet; none where it is not a family's."""
    return sorted(_kinds(node))


def allowed(schema: Node, node: Node) -> str:
    """What may stand in a place, in words; empty if anything may."""
    node = resolved(schema, node)
    text = _allowed(schema, node)
    return f"{text} or null" if text and node.get("nullable") else text


def _allowed(schema: Node, node: Node) -> str:
    if _kinds(node):
        return f"a mapping whose kind is one of {', '.join(kinds(node))}"
    if "anyOf" in node:
        return " or ".join(_allowed(schema, resolved(schema, choice)) for choice in node["anyOf"])
    if "enum" in node or "const" in node:
        return f"one of {', '.join(map(str, node['enum']))}" if "enum" in node else str(node["const"])
    return _of_type(schema, node)


def _of_type(schema: Node, node: Node) -> str:
    match node.get("type"):
        case "integer" | "number" as sort:
            return f"a {'whole ' if sort == 'integer' else ''}number{_bounds(node)}"
        case "boolean":
            return "true or false"
        case "array":
            return _list(schema, node)
        case "object":
            return f"a mapping of {', '.join(field_names(node)) or _named(schema, node)}"
        case "string":
            return _text(node)
        case _:
            return ""


def _named(schema: Node, node: Node) -> str:
    """What a mapping without fields of its own holds under each name."""
    return f"names to {allowed(schema, node.get('additionalProperties') or {})}"


def _text(node: Node) -> str:
    if node.get("format") == "date":
        return "a date such as 2001-01-31"
    return f"text that matches {node['pattern']}" if "pattern" in node else "text"


def _list(schema: Node, node: Node) -> str:
    inner = allowed(schema, node.get("items") or (node.get("prefixItems") or [{}])[0])
    least, most = node.get("minItems"), node.get("maxItems")
    size = f" of {least}" if least == most and least else f" of at least {least}" if least else ""
    return f"a list{size}" + (f", each {inner}" if inner else "")


def _bounds(node: Node) -> str:
    bounds = {bound: str(node[bound]).removesuffix(".0") for bound in _BOUNDS if bound in node}
    if {"minimum", "maximum"} <= bounds.keys():
        return f" from {bounds['minimum']} to {bounds['maximum']}"
    return " and".join(f" {_BOUNDS[bound]} {value}" for bound, value in bounds.items())


def _kinds(node: Node) -> dict[str, str]:
    return node.get("discriminator", {}).get("mapping", {})


def _inside(node: Node, part: str | int) -> Node:
    if isinstance(part, str):
        return node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
    positions = node.get("prefixItems", [])
    return positions[part] if part < len(positions) else node.get("items", {})
