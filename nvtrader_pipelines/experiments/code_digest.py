"""Digest of the code that decides results: docstrings, formatting and files do not count."""

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import filterfalse
from pathlib import Path
from typing import Self

DECIDING = ("components", "market", "portfolio", "envs", "policies", "evaluation", "experiments")  # folders of a run
# libraries whose results decide too
LIBRARIES = (
    "arch",
    "cvxpy",
    "exchange_calendars",
    "gymnasium",
    "highspy",
    "numba",
    "numpy",
    "polars",
    "sb3-contrib",
    "scikit-learn",
    "scipy",
    "skfolio",
    "stable-baselines3",
    "statsmodels",
    "torch",
)
DIGITS = 12
PACKAGE = "nvtrader_pipelines"
NAME = "\0"  # begins the token of a name, which may stand for different objects
SCOPES = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class _Module:
    """Top-level statements of a module as tokens, the objects it imports and the digests of those it defines."""

    statements: list[list[str]]
    imported: dict[str, set[str]]  # name → dotted names of the objects, several if functions import for themselves
    defined: dict[str, str]  # name → digest of the statements that bind it

    @classmethod
    @cache
    def parse(cls, source: bytes) -> Self:
        """Parse the source of a module."""
        tree = ast.parse(source)
        module = cls([], {}, {})
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    module.imported.setdefault(alias.asname or alias.name, set()).add(origin + alias.name)
        for statement in filterfalse(_is_prose, tree.body):
            tokens = list(_tokens(statement))
            digest = _digest(tokens)
            module.statements.append(tokens)
            module.defined |= {name: module.defined.get(name, "") + digest for name in _bound_names(statement)}
        return module


def syntax_digest(sources: Mapping[str, bytes]) -> str:
    """SHA-256 over the top-level statements of Python modules, in the order of their content.

    A definition that moves to another module keeps the digest; a changed number, operator or imported object does not.

    Args:
        sources: source by dotted name of the module.
    """
    modules = {name: _Module.parse(source) for name, source in sources.items()}

    def definition(dotted: str) -> str:
        """Digest of the definition of an object; its dotted name if it is a library's."""
        place, _, name = dotted.rpartition(".")
        if place not in modules:
            return "" if dotted.startswith(PACKAGE) and dotted not in modules else dotted
        module = modules[place]
        return module.defined.get(name) or definitions_of(module.imported.get(name, ()))

    def definitions_of(objects: Iterable[str]) -> str:
        return " ".join(sorted(map(definition, objects)))

    digests = []
    for module in modules.values():
        definitions = {NAME + name: definitions_of(objects) for name, objects in module.imported.items()}
        definitions |= {NAME + name: digest for name, digest in module.defined.items()}
        digests += [_digest(token + definitions.get(token, "") for token in tokens) for tokens in module.statements]
    return _digest(sorted(digests))


def _tokens(node: object, own: frozenset[str] = frozenset()) -> Iterator[str]:
    """Syntax of a node without prose; names that a function binds itself (`own`) stand for no other object."""
    if isinstance(node, ast.Name):
        yield node.id if node.id in own else NAME + node.id
    elif isinstance(node, ast.AST):
        node = _without_message(node)
        if isinstance(node, SCOPES):
            own |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)} | _stored_names(node)
        yield f"({type(node).__name__}"
        for field in node._fields:
            value = getattr(node, field)
            if value is None or value == []:  # left out, since releases of Python add fields
                continue
            yield field
            for item in value if isinstance(value, list) else (value,):
                if not _is_prose(item):
                    yield from _tokens(item, own)
        yield ")"
    else:
        yield repr(node)


def _is_prose(node: object) -> bool:
    """Whether a statement decides nothing by itself: an import, or the docstring of a module, class or field."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):  # imports for annotations
            return True
    return False


def _without_message(node: ast.AST) -> ast.AST:
    """Drop the message of an error, whose class callers catch, and the meaning of a column."""
    match node:
        case ast.Raise(exc=ast.Call(func=raised)):
            return ast.Raise(exc=raised, cause=None)
        case ast.Call(func=ast.Name(id="Column") as column):
            return ast.Call(func=column, args=node.args[:2], keywords=node.keywords)
    return node


def _bound_names(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    inner = (_stored_names(node) for node in ast.walk(statement) if isinstance(node, SCOPES))
    return _stored_names(statement).difference(*inner)


def _stored_names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@cache
def code_digest(folders: Sequence[str] = DECIDING) -> str:
    """12 hexadecimal digits of the code in these folders of the package and of the libraries that decide results."""
    package = Path(str(files(PACKAGE)))
    paths = [path for folder in folders for path in (package / folder).rglob("*.py")]
    sources = {_module(path.relative_to(package)): path.read_bytes() for path in paths}
    libraries = [f"{library}=={version(library)}" for library in LIBRARIES]
    stored = package / "__pycache__" / f"code-digest-{_digest(folders)[:DIGITS]}.txt"
    content = _content_digest(sources, libraries)
    return _read_digest(stored, content) or _write_digest(
        stored, content, _digest((syntax_digest(sources), *libraries))[:DIGITS]
    )


def _content_digest(sources: Mapping[str, bytes], libraries: Sequence[str]) -> str:
    """SHA-256 of sources and libraries; parsing the sources takes a hundred times longer."""
    hashes = (f"{name} {hashlib.sha256(source).hexdigest()}" for name, source in sorted(sources.items()))
    return _digest((sys.version, *libraries, *hashes))


def _read_digest(stored: Path, content: str) -> str | None:
    """Read the digest that an earlier process stored for the same content, or None."""
    with suppress(OSError, ValueError):
        known, digest = stored.read_text().split()
        return digest if known == content else None
    return None


def _write_digest(stored: Path, content: str, digest: str) -> str:
    """Store a digest for the next process, where the package can be written, and return it."""
    temporary = stored.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        temporary.write_text(f"{content} {digest}")
        temporary.replace(stored)
    return digest


def _module(path: Path) -> str:
    """Dotted name of the module in a file of the package."""
    return ".".join((PACKAGE, *path.with_suffix("").parts)).removesuffix(".__init__")


def run_code() -> str:
    """Code that decides a run's results."""
    return code_digest()


def scoring_code() -> str:
    """Code that decides a scorecard: that of runs, and the scoreboard's own."""
    return code_digest((*DECIDING, "scoreboard"))


def promotion_code() -> str:
    """Code that decides a promotion: that of scorecards, and the promotion gate."""
    return code_digest((*DECIDING, "scoreboard", "promotion"))
