"""Parts of installed packages in a spec, and the digest of their sources."""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import part_entry_points
from nvtrader_pipelines.experiments.code_digest import DIGITS, PACKAGE, run_code, syntax_digest

Part = type[Component]


def code_of(spec: Component) -> str:
    """Code digest of a spec: that of all runs, combined with the sources of the spec's parts."""
    parts = parts_digest(spec)
    return hashlib.sha256(f"{run_code()}{parts}".encode()).hexdigest()[:DIGITS] if parts else run_code()


def parts_of(spec: Any) -> set[Part]:
    """Classes of installed packages among the components of a spec."""
    return {part for part in _classes(spec) if part.__module__.partition(".")[0] != PACKAGE}


def parts_digest(spec: Any) -> str:
    """SHA-256 of the sources of a spec's parts; empty if it has no part."""
    modules = sorted({part.__module__ for part in parts_of(spec)})
    return hashlib.sha256("".join(map(_source_digest, modules)).encode()).hexdigest() if modules else ""


def installed_parts_digest() -> str:
    """SHA-256 of the sources of all packages with parts, without an import; empty without parts."""
    packages = sorted({entry.module.partition(".")[0] for entry in part_entry_points()})
    contents = [repr(sorted(_sources(package).items())) for package in packages]
    return hashlib.sha256("".join(contents).encode()).hexdigest() if packages else ""


def _classes(value: Any) -> Iterator[Part]:
    if isinstance(value, Component):
        yield type(value)
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for each in value:
            yield from _classes(each)


@cache
def _source_digest(module: str) -> str:
    """Digest of a module and of the modules of its package that it imports, directly or not."""
    sources = _sources(module.partition(".")[0])
    found: dict[str, bytes] = {}
    imported: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        if name in found or name not in sources:
            continue
        found[name] = sources[name]
        names = set(_imported_names(name, found[name]))
        imported |= {each for each in names if each.startswith(f"{PACKAGE}.")}
        left += [_module_of(each, sources) for each in names]
    return hashlib.sha256(repr((syntax_digest(found), sorted(imported))).encode()).hexdigest()


def _module_of(name: str, sources: Mapping[str, bytes]) -> str:
    """Module that holds an imported object: the longest prefix in `sources`; empty if none."""
    while name and name not in sources:
        name = name.rpartition(".")[0]
    return name


def _imported_names(module: str, source: bytes) -> Iterator[str]:
    """Dotted names that a module imports; relative ones resolved as in a module and a package."""
    parts = module.split(".")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            ends = (len(parts) - node.level, len(parts) - node.level + 1) if node.level else (0,)
            for end, alias in product(ends, node.names):
                yield ".".join(filter(None, [*parts[:end], node.module, alias.name]))


@cache
def _sources(package: str) -> dict[str, bytes]:
    """Sources of an installed package by module."""
    spec = find_spec(package)
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if spec is not None and spec.origin is not None and not folders:
        return {package: Path(spec.origin).read_bytes()}
    paths = [(path, path.relative_to(folder)) for folder in folders for path in sorted(folder.rglob("*.py"))]
    names = [(".".join((package, *inner.with_suffix("").parts)), path) for path, inner in paths]
    return {name.removesuffix(".__init__"): path.read_bytes() for name, path in names}
