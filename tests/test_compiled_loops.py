"""Compiled loops: Numba caches by file, so a change in another file would not recompile."""

import ast
from pathlib import Path

import pytest

import nvtrader_pipelines

PACKAGE = Path(nvtrader_pipelines.__file__).parent
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "njit" in path.read_text()]


def is_compiled(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("njit" in ast.unparse(each) for each in node.decorator_list)


def imported_names(tree: ast.Module) -> set[str]:
    own = [
        node for node in tree.body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nvtrader")
    ]
    return {alias.asname or alias.name for node in own for alias in node.names}


def used_names(function: ast.FunctionDef) -> set[str]:
    return {node.id for line in function.body for node in ast.walk(line) if isinstance(node, ast.Name)}


def test_compiled_loops_are_found():
    assert len(SOURCES) > 3


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_compiled_loops_use_no_import_of_the_package(source):
    tree = ast.parse(source.read_text())
    compiled = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_compiled(node)]
    assert {function.name: used_names(function) & imported_names(tree) for function in compiled} == {
        function.name: set() for function in compiled
    }
