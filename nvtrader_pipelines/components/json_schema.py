"""Places in a document by its JSON Schema: the dotted path, and what is allowed there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Node = dict[str, Any]  # part of a JSON Schema
_BOUNDS = {"minimum": "of at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


@dataclass(frozen=True)
class Place:
    """Place in a document."""

    path: str  # dotted, without the kinds of the components on the way
    node: Node  # schema of the place; empty if unknown
    owner: Node  # schema of the mapping or list that holds the place


def locate(schema: Node, location: Sequence[str | int]) -> Place:
    """Find the place of a validation error, whose location includes the kinds of components."""
    path: list[str] = []
    node, owner = resolve(schema, schema), schema
    for depth, part in enumerate(location, start=1):
        if part in _kinds(node):
            node = resolve(schema, {"$ref": _kinds(node)[str(part)]})
            continue
        if "anyOf" in node:  # name of a union member, such as float
            if depth < len(location):  # the place lies in the member that is a mapping
                node = resolve(schema, next((choice for choice in node["anyOf"] if "$ref" in choice), node))
            continue
        path.append(str(part))
        node, owner = resolve(schema, _child(node, part)), node
    return Place(".".join(path), node, owner)


def resolve(schema: Node, node: Node) -> Node:
    """Follow references; a nullable node becomes its other choice, marked nullable."""
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        return {**resolve(schema, choices[0]), "nullable": True}
    return node


def field_names(node: Node) -> list[str]:
    """Fields of a mapping, sorted."""
    return sorted(node.get("properties", {}))


def kinds(node: Node) -> list[str]:
    """Kinds of component allowed, sorted; empty if the place does not hold a family member."""
    return sorted(_kinds(node))


def describe_allowed(schema: Node, node: Node) -> str:
    """Describe the values allowed in a place; empty if any value is."""
    node = resolve(schema, node)
    text = _describe(schema, node)
    return f"{text} or null" if text and node.get("nullable") else text


def _describe(schema: Node, node: Node) -> str:
    if _kinds(node):
        return f"a mapping whose kind is one of {', '.join(kinds(node))}"
    if "anyOf" in node:
        return " or ".join(_describe(schema, resolve(schema, choice)) for choice in node["anyOf"])
    if "enum" in node or "const" in node:
        return f"one of {', '.join(map(str, node['enum']))}" if "enum" in node else str(node["const"])
    return _describe_type(schema, node)


def _describe_type(schema: Node, node: Node) -> str:
    match node.get("type"):
        case "integer" | "number" as sort:
            return f"a {'whole ' if sort == 'integer' else ''}number{_describe_bounds(node)}"
        case "boolean":
            return "true or false"
        case "array":
            return _describe_list(schema, node)
        case "object":
            return f"a mapping of {', '.join(field_names(node)) or _describe_values(schema, node)}"
        case "string":
            return _describe_text(node)
        case _:
            return ""


def _describe_values(schema: Node, node: Node) -> str:
    """Describe a mapping with free keys."""
    return f"names to {describe_allowed(schema, node.get('additionalProperties') or {})}"


def _describe_text(node: Node) -> str:
    if node.get("format") == "date":
        return "a date such as 2001-01-31"
    if "pattern" in node:
        return f"text that matches {node['pattern']}"
    least, most = node.get("minLength", 0), node.get("maxLength")
    return f"text of {least} to {most:,} characters" if most else "text"


def _describe_list(schema: Node, node: Node) -> str:
    inner = describe_allowed(schema, node.get("items") or (node.get("prefixItems") or [{}])[0])
    least, most = node.get("minItems"), node.get("maxItems")
    size = f" of {least}" if least == most and least else f" of at least {least}" if least else ""
    size = f" of {least} to {most}" if least and most and least < most else size
    return f"a list{size}" + (f", each {inner}" if inner else "")


def _describe_bounds(node: Node) -> str:
    bounds = {bound: str(node[bound]).removesuffix(".0") for bound in _BOUNDS if bound in node}
    if {"minimum", "maximum"} <= bounds.keys():
        return f" from {bounds['minimum']} to {bounds['maximum']}"
    return " and".join(f" {_BOUNDS[bound]} {value}" for bound, value in bounds.items())


def _kinds(node: Node) -> dict[str, str]:
    return node.get("discriminator", {}).get("mapping", {})


def _child(node: Node, part: str | int) -> Node:
    if isinstance(part, str):
        return node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
    positions = node.get("prefixItems", [])
    return positions[part] if part < len(positions) else node.get("items", {})
