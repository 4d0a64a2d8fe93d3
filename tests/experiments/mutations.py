"""Mutations of a package's sources: one number, operator, default, dictionary entry or lazy import each."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from nvtrader_pipelines.experiments.syntax import _is_prose, _without_prose

OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Pow: ast.Mult}
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}
Mutation = tuple[str, int, Callable[[], None]]  # kind, line, change of the tree


def mutations(tree: ast.Module, positions: set[int] | None = None) -> Iterator[Mutation]:
    """Mutations of the statements at these positions (None: all), counted as `Module.statements` counts them."""
    counted = [node for node in tree.body if not _is_left_out(node)]
    for position, statement in enumerate(counted):
        if positions is None or position in positions:
            yield from _mutations_of(statement, inside=False)


def apply_mutation(path: Path, number: int, positions: set[int] | None) -> tuple[str, int]:
    """Write the source of a module with one of its mutations; return its kind and line."""
    tree = ast.parse(path.read_bytes())
    kind, line, change = list(mutations(tree, positions))[number]
    change()
    path.write_text(ast.unparse(tree))
    return kind, line


def _is_left_out(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) or _is_prose(node)


def _mutations_of(node: ast.AST, *, inside: bool) -> Iterator[Mutation]:
    if isinstance(node, ast.JoinedStr) or _is_prose(node):  # of text
        return
    kind, change = _mutation(node)
    if change is not None and (inside or kind != "lazy import"):
        yield kind, getattr(node, "lineno", 0), change
    for child in ast.iter_child_nodes(_without_prose(node)):
        yield from _mutations_of(child, inside=inside or isinstance(node, ast.FunctionDef))


def _mutation(node: ast.AST) -> tuple[str, Callable[[], None] | None]:
    """Kind of mutation of a node, and the change; None if it has none."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return "number", lambda: setattr(node, "value", value + 1)
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            return "operator", lambda: setattr(node, "op", OPERATORS[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            return "operator", lambda: setattr(node, "ops", [COMPARISONS[type(op)]()])
        case ast.arguments(defaults=[_, *_]):
            return "default", lambda: node.defaults.__setitem__(-1, ast.Constant("another"))
        case ast.Dict(keys=[_, _, *_]):
            return "entry", lambda: (node.keys.pop(), node.values.pop())
        case ast.ImportFrom(names=[alias]):
            name = alias.asname or alias.name
            return "lazy import", lambda: setattr(node, "names", [ast.alias("another", name)])
    return "none", None
