"""Syntax of Python modules without prose: what each statement says, binds and refers to."""

import ast
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Self

SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


@dataclass(frozen=True)
class Statement:
    """Top-level statement of a module."""

    digest: str  # of the syntax, with names as text
    bound: frozenset[str]  # names that it binds in the module
    references: tuple[str, ...]  # names of the module that it uses, and `.`-prefixed objects that it imports


@dataclass(eq=False)
class Module:
    """Statements of a module besides prose and imports."""

    statements: list[Statement] = field(default_factory=list)
    imported: dict[str, str] = field(default_factory=dict)  # name → dotted name of the object
    starred: list[str] = field(default_factory=list)  # modules of which all names are imported
    members: set[str] = field(default_factory=set)  # names of the classes in its unions of components

    @classmethod
    @cache
    def parse(cls, name: str, source: bytes, *, is_package: bool = False) -> Self:
        """Parse the source of a module."""
        module = cls()
        package = name.split(".") if is_package else name.split(".")[:-1]
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                module._add_import(node, package)
            elif not _is_prose(node):
                module.members.update(_members(node))
                module.statements.append(_Reader(package).read(node))
        return module

    def _add_import(self, node: ast.Import | ast.ImportFrom, package: list[str]) -> None:
        for name, dotted in _imported_objects(node, package):
            if name == "*":
                self.starred.append(dotted.removesuffix(".*"))
            else:
                self.imported[name] = dotted

    @cached_property
    def binders(self) -> Mapping[str, list[int]]:
        """Positions of the statements that bind a name."""
        positions: dict[str, list[int]] = defaultdict(list)
        for i, statement in enumerate(self.statements):
            for name in statement.bound:
                positions[name].append(i)
        return positions

    @cached_property
    def users(self) -> Mapping[str, set[int]]:
        """Positions of the statements that use a name."""
        users: dict[str, set[int]] = defaultdict(set)
        for i, statement in enumerate(self.statements):
            for name in statement.references:
                users[name].add(i)
        return users

    def used_only_by(self, members: set[str]) -> set[int]:
        """Positions of the classes of these names, and of the definitions that only they use."""
        users: dict[int, set[int]] = defaultdict(set)
        for name, by in self.users.items():
            for used in self.binders.get(name, ()):
                users[used] |= by - {used}
        only_by_members = {i for i, statement in enumerate(self.statements) if statement.bound & members}
        while more := {i for i, by in users.items() if by and by <= only_by_members} - only_by_members:
            only_by_members |= more
        return only_by_members


class _Reader:
    """Reads one statement: its tokens, the names it refers to, and the names it binds."""

    def __init__(self, package: list[str]) -> None:
        self._package = package
        self._tokens: list[str] = []
        self._references: list[str] = []
        self._bound: set[str] = set()  # in the scope that is read

    def read(self, node: ast.stmt) -> Statement:
        self._add(node)
        return Statement(digest_of(self._tokens), frozenset(self._bound), tuple(self._references))

    def _add(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self._tokens.append(node.id)
            self._references.append(node.id)
            if isinstance(node.ctx, ast.Store):
                self._bound.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            objects = dict(_imported_objects(node, self._package))
            self._tokens += ["import", *objects]
            self._references += [f".{dotted}" for dotted in objects.values()]
            self._bound |= objects.keys()
        elif isinstance(node, SCOPES):
            self._add_scope(node)
        else:
            self._add_fields(_without_prose(node))

    def _add_scope(self, node: ast.AST) -> None:
        """Add a scope: names that a function binds refer to nothing in the module, other than in its head."""
        for head in _heads(node):
            self._add(head)
        references, bound = self._references, self._bound
        self._references, self._bound = [], set()
        self._add_fields(node)
        if not isinstance(node, ast.ClassDef):  # methods do not see the names of their class
            self._references = [name for name in self._references if name not in self._bound]
        self._references, self._bound = references + self._references, bound
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bound.add(node.name)

    def _add_fields(self, node: ast.AST) -> None:
        tokens = self._tokens
        if isinstance(node, ast.arg):
            self._bound.add(node.arg)
        tokens.append(f"({node.__class__.__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == []:  # left out, since releases of Python add fields
                continue
            tokens.append(name)
            for item in value if value.__class__ is list else (value,):
                if not isinstance(item, ast.AST):
                    tokens.append(repr(item))
                elif not _is_prose(item):
                    self._add(item)
        tokens.append(")")


def _heads(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a scope that belong to the scope around it: decorators, defaults, the first iterable."""
    yield from getattr(node, "decorator_list", ())
    yield from (generator.iter for generator in getattr(node, "generators", ())[:1])
    if isinstance(arguments := getattr(node, "args", None), ast.arguments):
        yield from filter(None, (*arguments.defaults, *arguments.kw_defaults))


def digest_of(lines: Iterable[str]) -> str:
    """SHA-256 of lines of text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _imported_objects(node: ast.Import | ast.ImportFrom, package: list[str]) -> Iterator[tuple[str, str]]:
    """Names that an import binds, with the dotted names of the objects."""
    if isinstance(node, ast.Import):
        yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        return
    above = package[: len(package) + 1 - node.level] if node.level else []
    origin = [*above, *([node.module] if node.module else [])]
    yield from ((alias.asname or alias.name, ".".join((*origin, alias.name))) for alias in node.names)


def _members(node: ast.stmt) -> list[str]:
    """Members of the union in `Name = Annotated[A | B, Field(discriminator=…), …]`; empty for other statements."""
    union = _union(node)
    return [node.id for node in ast.walk(union) if isinstance(node, ast.Name)] if union is not None else []


def _union(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.Assign(value=ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[union, *others]))):
            calls = [other for other in others if isinstance(other, ast.Call)]
            if any(keyword.arg == "discriminator" for call in calls for keyword in call.keywords):
                return union
    return None


def _is_prose(node: ast.AST) -> bool:
    """Whether a statement decides nothing: a docstring, imports for annotations, exported names, aliases of a kind."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.AnnAssign(target=ast.Name(id="aliases"), annotation=ast.Subscript(value=ast.Name(id="ClassVar"))):
            return True
    return False


def _without_prose(node: ast.AST) -> ast.AST:
    """Drop the message of an error, whose class callers catch, the meaning of a column or field, and members."""
    match node:
        case ast.Assign(value=ast.Subscript(slice=ast.Tuple(elts=elements))) if _union(node) is not None:
            return ast.Assign(targets=node.targets, value=ast.Tuple(elts=elements[1:], ctx=ast.Load()))
        case ast.Raise(exc=ast.Call(func=raised)):
            return ast.Raise(exc=raised, cause=None)
        case ast.Call(func=ast.Name(id="Column") as column):
            return ast.Call(func=column, args=node.args[:2], keywords=node.keywords)
        case ast.Call(func=ast.Name(id="Field") as function):
            keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]
            return ast.Call(func=function, args=node.args, keywords=keywords)
    return node
