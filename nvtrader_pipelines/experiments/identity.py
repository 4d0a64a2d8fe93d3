"""Identity of the code that decides results: blind to prose, formatting, imports and file places."""

import ast
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

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


class _WithoutProse(ast.NodeTransformer):
    """Remove docstrings, imports, meanings of columns and messages of errors: none of them decides a result."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Drop strings that stand alone: docstrings of modules, classes, functions and fields."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Drop the meaning of a column; its name and dtype stay."""
        if isinstance(node.func, ast.Name) and node.func.id == "Column":
            node.args = node.args[:2]
        self.generic_visit(node)
        return node

    def visit_Import(self, node: ast.Import) -> None:
        """Drop."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Drop."""

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        """Keep the raise and its class, which callers catch; drop the message."""
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.copy_location(ast.Raise(exc=raised), node)


def syntax_digest(sources: Iterable[bytes]) -> str:
    """SHA-256 over the top-level statements of Python sources, in the order of their content.

    A definition that moves to another file keeps the digest; a changed number, name or operator does not.
    """
    statements = [
        ast.dump(statement) for source in sources for statement in _WithoutProse().visit(ast.parse(source)).body
    ]
    return hashlib.sha256("\n".join(sorted(statements)).encode()).hexdigest()


@cache
def code_digest(folders: Sequence[str] = DECIDING) -> str:
    """12 hexadecimal digits of the code in these folders of the package and of the libraries that decide results."""
    package = Path(str(files("nvtrader_pipelines")))
    sources = (path.read_bytes() for folder in folders for path in (package / folder).rglob("*.py"))
    libraries = (f"{library}=={version(library)}" for library in LIBRARIES)
    return hashlib.sha256("\n".join((syntax_digest(sources), *libraries)).encode()).hexdigest()[:DIGITS]


def run_code() -> str:
    """Code that decides a run's results."""
    return code_digest()


def scoring_code() -> str:
    """Code that decides a scorecard: that of runs, and the scoreboard's own."""
    return code_digest((*DECIDING, "scoreboard"))


def promotion_code() -> str:
    """Code that decides a promotion: that of scorecards, and the promotion gate."""
    return code_digest((*DECIDING, "scoreboard", "promotion"))
