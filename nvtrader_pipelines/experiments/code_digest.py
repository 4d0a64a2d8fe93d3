"""Digest of the code that a result can reach: docstrings, formatting and files do not count."""

import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.experiments.syntax import Module, digest_of

DECIDING = (
    "components",
    "market",
    "portfolio",
    "envs",
    "worlds",
    "policies",
    "evaluation",
    "experiments",
)  # folders of a run
# libraries whose results decide too
LIBRARIES = (
    "arch",
    "clarabel",
    "cvxpy",
    "exchange_calendars",
    "gymnasium",
    "highspy",
    "numba",
    "numpy",
    "osqp",
    "polars",
    "sb3-contrib",
    "scikit-learn",
    "scipy",
    "scs",
    "skfolio",
    "stable-baselines3",
    "statsmodels",
    "torch",
)
DIGITS = 12
PACKAGE = "nvtrader_pipelines"
ENGINE = "experiments.runtime"  # training, accounts, walk and evaluation
WORLD_ENGINE = ("policies.training", "evaluation.world_results")  # training and evaluation in worlds
_MARKET = ("ingest", "cleaning", "series_files", "returns", "features", "regimes", "panel")
MARKET = tuple(f"market.{name}" for name in _MARKET)
DEPTH = 3  # references between definitions that tell equal definitions apart

Place = tuple[str, int]  # module and position of a statement in it
RUN = -1  # position for a module that is run, since something of it is imported


class Program:
    """Modules of some folders of this package, and of other packages with components of a spec."""

    def __init__(self, folders: Iterable[str], packages: Iterable[str] = ()) -> None:
        files = dict(module for folder in folders for module in _modules_below(folder))
        files |= dict(module for package in packages for module in _modules_of_package(package))
        self._packages = {name for name, path in files.items() if path.name == "__init__.py"}
        self._sources = {name: path.read_bytes() for name, path in files.items()}  # once: files may change
        self._modules: dict[str, Module] = {}
        self._digests: dict[tuple[Place, int], str] = {}
        self._targets: dict[tuple[str, str], tuple[Place | str, ...]] = {}

    def module(self, name: str) -> Module:
        """Module of a name."""
        if name not in self._modules:
            self._modules[name] = Module.parse(name, self._sources[name], is_package=name in self._packages)
        return self._modules[name]

    def modules(self, pattern: str) -> list[str]:
        """Names of the module, or of the modules in a folder (`folder.*`), of this package."""
        if not pattern.endswith(".*"):
            return [f"{PACKAGE}.{pattern}"]
        return [name for name in self._sources if name.startswith(f"{PACKAGE}.{pattern.removesuffix('*')}")]

    def reach(self, roots: Iterable[str], reached: Collection[Place] = ()) -> set[Place]:
        """Statements that the roots can reach, without those that are `reached` already.

        Roots are modules, or objects of modules. A module that is imported counts with all its statements and imports
        but members of families and what only they use: these count where a statement that is reached names them.
        """
        found: set[Place] = set()
        whole: set[str] = set()
        left: list[Place | str] = [target for root in roots for target in self._resolve(root)]
        while left:
            target = left.pop()
            if isinstance(target, str):
                if target in self._sources and target not in whole:
                    whole.add(target)
                    imported = self.module(target).imported.values()
                    left += [*self._statements_of(target), (target, RUN)]
                    left += [module for dotted in imported for module in self._resolve(dotted)]
            elif target not in found and target not in reached:
                found.add(target)
                name, position = target
                left += self._counted(name) if position == RUN else [(name, RUN), *self._targets_at(target)]
        return found

    @cached_property
    def content(self) -> str:
        """SHA-256 of the sources and of the versions; parsing the sources takes twenty times longer."""
        hashes = (f"{name} {hashlib.sha256(source).hexdigest()}" for name, source in sorted(self._sources.items()))
        return digest_of((sys.version, *_libraries(), *hashes))

    def digest(self, places: Iterable[Place]) -> str:
        """Digest of statements, in the order of their content: a definition that moves keeps it."""
        return digest_of(sorted(self._digest(place, DEPTH) for place in places if place[1] != RUN))

    def _digest(self, place: Place, depth: int) -> str:
        """Digest of a statement and of what it refers to."""
        if (known := self._digests.get((place, depth))) is not None:
            return known
        name, position = place
        statement = self.module(name).statements[position]
        lines = [statement.digest]
        for reference in statement.references if depth else ():
            targets = [
                target for target in self._targets_of(name, reference) if isinstance(target, str) or target[1] != RUN
            ]
            lines.append(
                " ".join(target if isinstance(target, str) else self._digest(target, depth - 1) for target in targets)
            )
        digest = self._digests[place, depth] = digest_of(lines)
        return digest

    def _statements_of(self, name: str) -> list[Place]:
        return [(name, position) for position in range(len(self.module(name).statements))]

    def _counted(self, name: str) -> list[Place | str]:
        """What counts once a module is run, see `reach`; its package is run, too."""
        module, package = self.module(name), name.rpartition(".")[0]
        optional = module.used_only_by(self._members(name))
        counted: list[Place | str] = [place for place in self._statements_of(name) if place[1] not in optional]
        for imported, dotted in module.imported.items():
            users = module.users.get(imported, set())
            if not users <= optional if users else imported not in module.members:
                counted += self._resolve(dotted)
        return [*counted, *module.starred, *([(package, RUN)] if package in self._sources else [])]

    def _members(self, name: str) -> set[str]:
        """Classes of a module that are members of families, which it or a package above it defines."""
        parts = name.split(".")
        above = (".".join(parts[: i + 1]) for i in range(len(parts)))
        families = [(place, self.module(place)) for place in above if place in self._sources]
        dotted = {
            module.imported.get(member, f"{place}.{member}") for place, module in families for member in module.members
        }
        return {path.rpartition(".")[2] for path in dotted if path.rpartition(".")[0] == name}

    def _targets_at(self, place: Place) -> Iterator[Place | str]:
        """What a statement refers to."""
        name, position = place
        for reference in self.module(name).statements[position].references:
            yield from self._targets_of(name, reference)

    def _targets_of(self, name: str, reference: str) -> tuple[Place | str, ...]:
        """Statements, or modules and objects of libraries, that a reference in a module stands for."""
        key = name, reference
        if key not in self._targets:
            dotted = reference[1:] if reference.startswith(".") else f"{name}.{reference}"
            self._targets[key] = tuple(self._resolve(dotted, inside=not reference.startswith(".")))
        return self._targets[key]

    def _resolve(self, dotted: str, *, inside: bool = False) -> Iterator[Place | str]:
        place, _, name = dotted.rpartition(".")
        if (dotted in self._sources and not inside) or place not in self._sources:
            yield dotted
            return
        module, origin = self.module(place), self.module(place).imported.get(name)
        yield place, RUN
        yield from ((place, i) for i in module.binders.get(name, ()))
        if origin == dotted:  # a compiled module
            yield dotted
        elif origin is not None:
            yield from self._resolve(origin)
        elif name not in module.binders:  # a built-in name, of a star, or made by `__getattr__`
            yield from module.starred if inside else (place,)


def _modules_below(folder: str) -> Iterator[tuple[str, Path]]:
    """Modules in a folder of this package, with their files."""
    package = Path(str(files(PACKAGE)))
    for path in (package / folder).rglob("*.py"):
        yield _dotted(PACKAGE, path.relative_to(package)), path


def _modules_of_package(package: str) -> Iterator[tuple[str, Path]]:
    """Modules of an installed package, with their files, without an import."""
    spec = find_spec(package)
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if spec is not None and spec.origin is not None and not folders:
        yield package, Path(spec.origin)
    for folder in folders:
        yield from ((_dotted(package, path.relative_to(folder)), path) for path in sorted(folder.rglob("*.py")))


def _dotted(package: str, path: Path) -> str:
    """Dotted name of the module in a file of a package."""
    return ".".join((package, *path.with_suffix("").parts)).removesuffix(".__init__")


def classes_of(value: Any) -> Iterator[type[Component]]:
    """Classes of the components in a spec, and in the stages of a curriculum."""
    if isinstance(value, Component):
        yield type(value)
    if callable(stages := getattr(value, "stages", None)):
        yield from classes_of(stages())
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for item in value:
            yield from classes_of(item)


@cache
def code_digest(roots: tuple[str, ...], components: frozenset[str] = frozenset(), *more: str) -> str:
    """12 hexadecimal digits of the code that modules and components can reach, and of the libraries that decide.

    Args:
        roots: modules of this package, or folders as `folder.*`.
        components: dotted names of the classes of components.
        more: folders of this package that count beside those of a run.
    """
    program = _program((*DECIDING, *more), frozenset({name.partition(".")[0] for name in components} - {PACKAGE}))
    key = digest_of((*roots, "components", *sorted(components), "folders", *more))[:DIGITS]
    stored = Path(str(files(PACKAGE))) / "__pycache__" / f"code-digest-{key}.txt"
    if (digest := _read_digest(stored, program.content)) is None:
        reached = program.reach(name for root in roots for name in program.modules(root))
        reached |= program.reach(components, reached)
        digest = digest_of((program.digest(reached), *_libraries()))[:DIGITS]
        _write_digest(stored, program.content, digest)
    return digest


@cache
def _program(folders: tuple[str, ...], packages: frozenset[str]) -> Program:
    return Program(folders, packages)


def _libraries() -> tuple[str, ...]:
    """Versions of libraries, and the digest of the sessions of exchanges."""
    from nvtrader_pipelines.market.calendar import SESSIONS  # imports NumPy

    sessions = hashlib.sha256(SESSIONS.read_bytes()).hexdigest()
    return *(f"{library}=={version(library)}" for library in LIBRARIES), sessions


def _read_digest(stored: Path, content: str) -> str | None:
    """Read the digest that an earlier process stored for the same content, or None."""
    with suppress(OSError, ValueError):
        of_content, digest = stored.read_text().split()
        return digest if of_content == content else None
    return None


def _write_digest(stored: Path, content: str, digest: str) -> None:
    """Store a digest for the next process, where the package can be written."""
    temporary = stored.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        temporary.write_text(f"{content} {digest}")
        temporary.replace(stored)


def code_of(*specs: Component) -> str:
    """Code that decides a run's results: the engine, and the components of its experiment."""
    return code_digest((ENGINE,), _components_of(*specs))


def world_code(*specs: Component) -> str:
    """Code that decides the results of a run in a world."""
    return code_digest(WORLD_ENGINE, _components_of(*specs))


def market_code(market: Component) -> str:
    """Code that decides the tables of the market."""
    return code_digest(MARKET, _components_of(market))


def scoring_code(*specs: Component) -> str:
    """Code that decides the scorecards of entrants with these specs."""
    return code_digest(("scoreboard.scoring",), _components_of(*specs), "scoreboard")


def contest_code(*specs: Component) -> str:
    """Code that decides a contest of entrants with these specs: scorecards, and tables over all runs."""
    return code_digest(("scoreboard.*", "evaluation.sharpe.ratio_curve"), _components_of(*specs), "scoreboard")


def promotion_code() -> str:
    """Code that decides a promotion, besides the contest's."""
    return code_digest(("promotion.*",), frozenset(), "scoreboard", "promotion")


def _components_of(*specs: Component) -> frozenset[str]:
    """Dotted names of the classes of components in specs."""
    return frozenset(
        part.__module__ if "." in part.__qualname__ else f"{part.__module__}.{part.__qualname__}"  # nested: its module
        for spec in specs
        for part in classes_of(spec)
    )
