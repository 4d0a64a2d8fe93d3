"""Import graph of the package, with imports inside functions and under TYPE_CHECKING."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import nvtrader_pipelines

PACKAGE = Path(nvtrader_pipelines.__file__).parent


def module_name(path):
    parts = ("nvtrader_pipelines", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(body):
    for node in body:
        yield node
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from statements(getattr(node, part, ()))


def imported_modules(tree, modules):
    for node in statements(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.slow
def test_import_graph_has_no_cycle():
    trees = {module_name(path): ast.parse(path.read_bytes()) for path in PACKAGE.rglob("*.py")}
    graph = {name: {other for other in imported_modules(tree, trees) if other in trees} for name, tree in trees.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(trees)  # raises CycleError
