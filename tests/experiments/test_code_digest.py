import shutil
from pathlib import Path

import pytest

import nvtrader_pipelines
from nvtrader_pipelines.experiments import code_digest as identity
from nvtrader_pipelines.experiments.code_digest import (
    DECIDING,
    PACKAGE,
    code_digest,
    run_code,
    scoring_code,
    syntax_digest,
)

FOLDER = Path(nvtrader_pipelines.__file__).parent
SOURCE = b"""
\"\"\"Costs.\"\"\"

from math import sqrt

RATE = 0.001  # of the trade
COST = Column("cost", pl.Float64, "fees in dollars")


def cost(trade: float) -> float:
    \"\"\"Fraction of wealth.\"\"\"
    if trade < 0:
        raise ValueError("trade must be positive")
    return RATE * sqrt(trade)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the folders that decide, which the identity reads."""
    for folder in (*DECIDING, "scoreboard", "figures"):
        shutil.copytree(FOLDER / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity, "files", lambda _: tmp_path)
    code_digest.cache_clear()
    yield tmp_path
    code_digest.cache_clear()


def replace(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    code_digest.cache_clear()


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        (b"Costs.", b"What trading costs.", False),
        (b"Fraction of wealth.", b"Cost.", False),
        (b"# of the trade", b"# another comment", False),
        (b"fees in dollars", b"commission in dollars", False),
        (b"from math import sqrt", b"import os\nfrom math import sqrt", False),
        (b"RATE * sqrt(trade)", b"(\n        RATE\n        * sqrt(trade)\n    )", False),
        (b"trade must be positive", b"a trade is a size, so it must be positive", False),
        (b"0.001", b"0.002", True),
        (b"< 0", b"<= 0", True),
        (b"RATE *", b"RATE +", True),
        (b"Float64", b"Float32", True),
        (b"ValueError", b"TypeError", True),
        (b"from math", b"from numpy", True),
    ],
)
def test_syntax_digest_sees_numbers_operators_and_raised_classes_and_no_prose(before, after, seen):
    assert before in SOURCE
    assert (syntax_digest({"costs": SOURCE.replace(before, after)}) != syntax_digest({"costs": SOURCE})) == seen


def test_syntax_digest_ignores_which_module_holds_a_definition():
    rate, cost = b"RATE = 0.001\n", b"def cost(trade):\n    return RATE * trade\n"
    whole = {f"{PACKAGE}.costs": rate + cost}
    halves = {f"{PACKAGE}.rates": rate, f"{PACKAGE}.costs": f"from {PACKAGE}.rates import RATE\n".encode() + cost}
    assert syntax_digest(halves) == syntax_digest(whole)


def test_syntax_digest_follows_an_import_through_a_package():
    direct = {
        f"{PACKAGE}.fees": b"from os import sep\n",
        f"{PACKAGE}.fees.rates": b"RATE = 0.001\n",
        f"{PACKAGE}.costs": f"from {PACKAGE}.fees.rates import RATE\nCOST = 2 * RATE\n".encode(),
    }
    through = {
        **direct,
        f"{PACKAGE}.fees": f"from {PACKAGE}.fees.rates import RATE\n".encode(),
        f"{PACKAGE}.costs": f"from {PACKAGE}.fees import RATE\nCOST = 2 * RATE\n".encode(),
    }
    assert syntax_digest(through) == syntax_digest(direct)


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_syntax_digest_tells_equal_names_of_different_objects_apart(first, second):
    def sources(of_days, of_months):
        return {
            f"{PACKAGE}.a": b"MIN = 20\n",
            f"{PACKAGE}.b": b"MIN = 60\n",
            f"{PACKAGE}.days": f"from {PACKAGE}.{of_days} import MIN\nDAYS = 2 * MIN\n".encode(),
            f"{PACKAGE}.months": f"from {PACKAGE}.{of_months} import MIN\nMONTHS = 3 * MIN\n".encode(),
        }

    digests = {syntax_digest(sources(*pair)) for pair in [(first, second), (second, first), (first, first)]}
    assert len(digests) == 3


def test_syntax_digest_sees_equal_names_swapped_between_modules():
    use = b"def half(x):\n    return x / LIMIT\n", b"def third(x):\n    return LIMIT * x\n"
    before = {f"{PACKAGE}.a": b"LIMIT = 2\n" + use[0], f"{PACKAGE}.b": b"LIMIT = 3\n" + use[1]}
    swapped = {f"{PACKAGE}.a": b"LIMIT = 3\n" + use[0], f"{PACKAGE}.b": b"LIMIT = 2\n" + use[1]}
    assert syntax_digest(before) != syntax_digest(swapped)


def test_run_code_ignores_comments_docstrings_moves_and_chart_colors(package):
    before = run_code()
    path = package / "portfolio" / "costs.py"
    with path.open("a") as file:
        file.write("# appended\n")
    replace(path, '"""', '"""Reworded: ')
    (package / "envs" / "moved").mkdir()
    shutil.move(package / "envs" / "actions.py", package / "envs" / "moved" / "actions.py")
    for path in package.rglob("*.py"):
        path.write_text(path.read_text().replace(f"{PACKAGE}.envs.actions ", f"{PACKAGE}.envs.moved.actions "))
    palette = next(path for path in (package / "figures").rglob("*.py") if "#" in path.read_text())
    replace(palette, "#", "#a")
    assert run_code() == before


def test_run_code_sees_a_changed_constant(package):
    before, scoring_before = run_code(), scoring_code()
    replace(package / "evaluation" / "statistics.py", "ddof=1", "ddof=0")
    assert run_code() != before
    assert scoring_code() != scoring_before


def test_scoring_code_sees_the_scoreboard_and_run_code_does_not(package):
    run_before, scoring_before = run_code(), scoring_code()
    replace(package / "scoreboard" / "contest_backtest.py", "252", "251")
    assert run_code() == run_before
    assert scoring_code() != scoring_before


def test_run_code_sees_another_version_of_a_deciding_library(package, monkeypatch):
    before = run_code()
    monkeypatch.setattr(identity, "version", lambda library: "0.0.1" if library == "numpy" else "1")
    code_digest.cache_clear()
    assert run_code() != before


def test_code_digest_of_unchanged_sources_is_read_and_not_parsed(package, monkeypatch):
    (package / "__pycache__").mkdir(exist_ok=True)
    before = run_code()
    code_digest.cache_clear()
    monkeypatch.setattr(identity, "syntax_digest", lambda sources: pytest.fail("parsed again"))
    assert run_code() == before


def test_code_digest_ignores_a_damaged_stored_digest(package):
    (package / "__pycache__").mkdir(exist_ok=True)
    before = run_code()
    (stored,) = (package / "__pycache__").glob("code-digest-*.txt")
    stored.write_text("damaged")
    code_digest.cache_clear()
    assert run_code() == before


def test_syntax_digest_ignores_imports_for_annotations():
    plain = b"from __future__ import annotations\nLIMIT = 3\n"
    typed = plain + b"if TYPE_CHECKING:\n    from pathlib import Path\n"
    assert syntax_digest({f"{PACKAGE}.a": plain}) == syntax_digest({f"{PACKAGE}.a": typed})


def test_syntax_digest_ignores_a_local_name_that_its_new_module_defines_too():
    function = b"def squares(values):\n    name = [v * v for v in values]\n    return name\n"
    other = b"name = 3\nTWICE = [2 * v for v in (1, name)]\n"
    together = {f"{PACKAGE}.a": function + other}
    apart = {f"{PACKAGE}.a": function, f"{PACKAGE}.b": other}
    assert syntax_digest(together) == syntax_digest(apart)


def test_syntax_digest_sees_another_import_inside_one_of_two_functions():
    def sources(first):
        functions = "".join(
            f"def {name}():\n    from {PACKAGE}.{origin} import MIN\n    return MIN\n"
            for name, origin in (("days", first), ("months", "b"))
        )
        return {f"{PACKAGE}.a": b"MIN = 20\n", f"{PACKAGE}.b": b"MIN = 60\n", f"{PACKAGE}.use": functions.encode()}

    assert syntax_digest(sources("a")) != syntax_digest(sources("b"))


def test_syntax_digest_sees_another_module_behind_a_name():
    def sources(module):
        use = f"from {PACKAGE} import {module} as limits\nTWICE = 2 * limits.MIN\n".encode()
        return {f"{PACKAGE}.a": b"MIN = 20\n", f"{PACKAGE}.b": b"MIN = 60\n", f"{PACKAGE}.use": use}

    assert syntax_digest(sources("a")) != syntax_digest(sources("b"))
