import shutil

import pytest

from nvtrader_pipelines.envs.rewards import DrawdownPenalty
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.experiments import code_digest as identity
from nvtrader_pipelines.experiments.code_digest import (
    PACKAGE,
    code_digest,
    code_of,
    market_code,
    promotion_code,
    scoring_code,
)
from nvtrader_pipelines.experiments.entrant_specs import BaselineEntrantSpec
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.sources import MarketSpec
from nvtrader_pipelines.policies.agents import SacAgent
from nvtrader_pipelines.policies.baselines import Momentum
from tests.experiments.copied_package import forget, run_codes

SOURCE = """
\"\"\"Costs.\"\"\"

from math import sqrt

RATE = 0.001  # of the trade
COST = Column("cost", pl.Float64, "fees in dollars")


class Costs:
    \"\"\"Fees.\"\"\"

    aliases: ClassVar[tuple[str, ...]] = ("fees",)
    fee: float = Field(default=0.1, description="dollars a trade")


def cost(trade: float) -> float:
    \"\"\"Fraction of wealth.\"\"\"
    if trade < 0:
        raise ValueError("trade must be positive")
    return RATE * sqrt(trade)
"""


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """Function that returns the digest of a package with these sources in its folder `market`."""
    monkeypatch.setattr(identity, "files", lambda _: tmp_path)
    folder = tmp_path / "market"

    def digest_of(sources, root="use"):
        shutil.rmtree(folder, ignore_errors=True)
        for name, source in {"__init__": "", **sources}.items():
            path = folder.joinpath(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        forget()
        return code_digest((f"market.{root}",))

    yield digest_of
    forget()


SPEC, ENTRANT = ExperimentSpec(name="a"), BaselineEntrantSpec()


@pytest.fixture(scope="module")
def codes():
    """Codes of a run, its scoring and the shipped runs, of the package as it is."""
    return code_of(SPEC), scoring_code(ENTRANT), run_codes()


def replace(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    forget()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ("Costs.", "What trading costs.", False),
        ("Fraction of wealth.", "Cost.", False),
        ("# of the trade", "# another comment", False),
        ("fees in dollars", "commission in dollars", False),
        ("dollars a trade", "euros a trade", False),
        ('("fees",)', '("fees", "charges")', False),
        ("from math import sqrt", "from os import sep\nfrom math import sqrt", False),
        ("RATE * sqrt(trade)", "(\n        RATE\n        * sqrt(trade)\n    )", False),
        ("trade must be positive", "a trade is a size, so it must be positive", False),
        ("0.001", "0.002", True),
        ("default=0.1", "default=0.2", True),
        ("< 0", "<= 0", True),
        ("RATE *", "RATE +", True),
        ("Float64", "Float32", True),
        ("ValueError", "TypeError", True),
        ("from math", "from numpy", True),
    ],
)
def test_digest_sees_numbers_operators_and_raised_classes_and_no_prose(digest, before, after, seen):
    assert before in SOURCE
    assert (digest({"use": SOURCE.replace(before, after)}) != digest({"use": SOURCE})) == seen


def test_digest_ignores_which_module_holds_a_definition(digest):
    rate, cost = "RATE = 0.001\n", "def cost(trade):\n    return RATE * trade\n"
    halves = {"rates": rate, "use": f"from {PACKAGE}.market.rates import RATE\n{cost}"}
    assert digest(halves) == digest({"use": rate + cost})


def test_digest_follows_an_import_through_a_package(digest):
    use = f"from {PACKAGE}.market.fees{{}} import RATE\nCOST = 2 * RATE\n"
    direct = {"fees.__init__": "", "fees.rates": "RATE = 0.001\n", "use": use.format(".rates")}
    through = {**direct, "fees.__init__": f"from {PACKAGE}.market.fees.rates import RATE\n", "use": use.format("")}
    assert digest(through) == digest(direct)
    assert digest({**through, "fees.rates": "RATE = 0.002\n"}) != digest(through)


@pytest.mark.parametrize(
    "use",
    [
        "from {p}.a import X\nfrom {p}.b import X as Y\nHALF = X / 2\nTHIRD = Y / 3\n",
        "from {p} import a as m\nTWICE = 2 * m.X\n",
        "def one():\n    from {p}.a import X\n    return X\n\n\ndef two():\n    from {p}.b import X\n    return X\n",
        "try:\n    from {p}.a import X\nexcept ImportError:\n    from {p}.b import X\n",
        "def both():\n    from {p}.a import X\n    from {p}.b import X as Y\n    return X - Y\n",
        "from {p}.a import *\nfrom {p}.b import *\nTWICE = 2 * X\n",
        "from {p}.a import TWICE\nfrom {p}.b import TWICE as OTHER\nHALF = TWICE / 2\nTHIRD = OTHER / 3\n",
    ],
    ids=[
        "names",
        "modules",
        "lazily in two functions",
        "in a try",
        "lazily in one function",
        "stars",
        "two steps away",
    ],
)
def test_digest_sees_two_modules_swapped_in_imports(digest, use):
    twice = f"from {PACKAGE}.market.{{}} import X\nTWICE = 2 * X\n"
    values = {"a": "X = 20\n", "b": "X = 60\n"}
    if "TWICE /" in use:
        values = {"c": "X = 20\n", "d": "X = 60\n", "a": twice.format("c"), "b": twice.format("d")}
    use = use.format(p=f"{PACKAGE}.market")
    swapped = use.replace("market.a ", "market.? ").replace("market.b ", "market.a ").replace("market.? ", "market.b ")
    if "import a as" in use:
        swapped = use.replace("import a as", "import b as")
    assert swapped != use
    assert digest({**values, "use": swapped}) != digest({**values, "use": use})


def test_digest_sees_equal_names_swapped_between_modules(digest):
    half, third = "def half(x):\n    return x / LIMIT\n", "def third(x):\n    return LIMIT * x\n"
    use = f"from {PACKAGE}.market.a import half\nfrom {PACKAGE}.market.b import third\nBOTH = half(third(1))\n"
    before = {"a": f"LIMIT = 2\n{half}", "b": f"LIMIT = 3\n{third}", "use": use}
    assert digest({**before, "a": f"LIMIT = 3\n{half}", "b": f"LIMIT = 2\n{third}"}) != digest(before)


def test_digest_ignores_imports_for_annotations(digest):
    plain = "LIMIT = 3\n"
    typed = f"{plain}if TYPE_CHECKING:\n    from {PACKAGE}.market.a import Path\n"
    assert digest({"use": plain, "a": "Path = 1\n"}) == digest({"use": typed, "a": "Path = 1\n"})


def test_digest_ignores_a_local_name_that_its_new_module_defines_too(digest):
    function = "def squares(values):\n    name = [v * v for v in values]\n    return name\n"
    other = "name = 3\nTWICE = [2 * v for v in (1, name)]\n"
    use = f"from {PACKAGE}.market.a import squares\nfrom {PACKAGE}.market.{{}} import TWICE\nALL = squares(TWICE)\n"
    together = {"a": function + other, "use": use.format("a")}
    assert digest(together) == digest({"a": function, "b": other, "use": use.format("b")})


def test_digest_of_a_default_counts_the_object_and_not_the_parameter(digest):
    use = f"from {PACKAGE}.market.a import rate\n\n\ndef cost(trade, rate=rate):\n    return rate * trade\n"
    assert digest({"a": "rate = 1\n", "use": use}) != digest({"a": "rate = 2\n", "use": use})


@pytest.mark.parametrize(
    ("use", "package"),
    [
        ("import {p}.a\n", ""),
        ("from {p}.a import *\n", ""),
        ("from {p} import a\n", ""),
        ("from {p}.a import rate\nrate = abs(rate)\n", ""),
        ("from {p} import a as m\nfrom {p}.sub import rate\n", "from {p}.a import *\n"),
        ("from {p} import sub\nTWICE = 2 * sub.rate\n", "from {p}.a import rate\n"),
        ("from {p}.sub import rate\n", "def __getattr__(name):\n    from {p} import a\n    return getattr(a, name)\n"),
        ("from {p}.sub import half\n", "from {p}.a import rate\nhalf = 0.5\n"),
        ("class A:\n    def f(self):\n        return [rate for rate in rate()]\n\n\nfrom {p}.a import rate\n", ""),
    ],
)
def test_digest_counts_a_module_that_is_reached_in_any_way(digest, use, package):
    use, package = (text.format(p=f"{PACKAGE}.market") for text in (use, package))
    first, second = (digest({"a": f"rate = {value}\n", "sub.__init__": package, "use": use}) for value in (1, 2))
    assert first != second


def test_digest_sees_the_third_of_three_lazy_imports(digest):
    method = "    def {}(self):\n        from {}.{} import X\n        return X\n\n"
    use = "class C:\n" + method.format("f", f"{PACKAGE}.market", "a") + method.format("g", f"{PACKAGE}.market", "b")
    values = {"a": "X = 1\n", "b": "X = 2\n"}
    third = [use + method.format("h", f"{PACKAGE}.market", module) for module in "ab"]
    assert digest({**values, "use": third[0]}) != digest({**values, "use": third[1]})


def test_digest_counts_what_annotates_a_union(digest):
    union = "K = Annotated[A | B, Field(discriminator='kind'), BeforeValidator(check)]\n"
    use = f"from {PACKAGE}.market.a import check\n{union}"
    before = digest({"a": "check = 1\n", "use": use})
    assert digest({"a": "check = 2\n", "use": use}) != before
    assert digest({"a": "check = 1\n", "use": use.replace("A | B", "A | B | C")}) == before


def test_code_of_a_class_inside_another_counts_its_module():
    inner = type("Inner", (Momentum,), {"__module__": f"{PACKAGE}.policies.agents.sac", "__qualname__": "Outer.Inner"})
    assert identity._components_of(inner()) == {f"{PACKAGE}.policies.agents.sac"}


def test_digest_takes_a_compiled_module_for_that_of_a_library(digest):
    use = f"from {PACKAGE}.market import _core\nTWICE = 2 * _core.X\n"
    assert digest({"__init__": f"from {PACKAGE}.market import _core\n", "use": use}) != digest({"use": "TWICE = 2\n"})


@pytest.mark.slow
def test_run_code_ignores_comments_docstrings_moves_and_chart_colors(codes, package):
    path = package / "portfolio" / "costs.py"
    with path.open("a") as file:
        file.write("# appended\n")
    replace(path, '"""', '"""Reworded: ')
    (package / "envs" / "moved").mkdir()
    shutil.move(package / "envs" / "dynamics.py", package / "envs" / "moved" / "dynamics.py")
    for path in package.rglob("*.py"):
        path.write_text(path.read_text().replace(f"{PACKAGE}.envs.dynamics ", f"{PACKAGE}.envs.moved.dynamics "))
    palette = next(path for path in (package / "figures").rglob("*.py") if "#" in path.read_text())
    replace(palette, "#", "#a")
    assert run_codes() == codes[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "before", "after", "run", "scoring"),
    [
        ("evaluation/statistics.py", "ddof=1", "ddof=0", True, True),
        ("evaluation/stress/scenario.py", "return", "return 1 +", False, True),
        ("scoreboard/contest_backtest.py", "252", "251", False, True),
        ("evaluation/prudex/scores.py", "50", "51", False, False),
        ("promotion/gate.py", "self.low > 0.0", "self.low > 0.1", False, False),
        ("policies/agents/sac.py", "=", "= 1 +", False, False),
    ],
)
def test_code_sees_what_its_results_reach_and_nothing_else(codes, package, file, before, after, run, scoring):
    replace(package / file, before, after)
    assert (code_of(SPEC) != codes[0], scoring_code(ENTRANT) != codes[1]) == (run, scoring)


@pytest.mark.slow
def test_code_counts_a_component_only_where_a_spec_uses_it(package):
    drawdown = EnvSpec(rewards=(DrawdownPenalty(),))
    used = [
        ExperimentSpec(name="a", agent=SacAgent()),
        ExperimentSpec(name="a", environment=drawdown),
        ExperimentSpec(name="a", agent=Momentum(), baselines=(Momentum(),)),
    ]
    before = [code_of(spec) for spec in used]
    replace(package / "policies" / "agents" / "sac.py", "class SacAgent", "LIMIT = 1\n\n\nclass SacAgent")
    replace(package / "policies" / "baselines.py", "class Momentum(", "@final\nclass Momentum(")
    after = [code_of(spec) for spec in used]
    assert [a != b for a, b in zip(after, before, strict=True)] == [True, False, True]


@pytest.mark.slow
def test_scoring_and_promotion_and_market_code_differ(package):
    codes = {scoring_code(), scoring_code(BaselineEntrantSpec(rule=Momentum())), promotion_code()}
    assert len(codes | {code_of(), market_code(MarketSpec())}) == 5


@pytest.mark.slow
def test_run_code_sees_another_version_of_a_deciding_library(package, monkeypatch):
    before, version = code_of(), identity.version
    for library in ("numpy", "clarabel", "osqp", "scs"):
        with monkeypatch.context() as patch:
            patch.setattr(identity, "version", lambda name, other=library: "0.0.1" if name == other else version(name))
            code_digest.cache_clear()
            assert code_of() != before


@pytest.mark.slow
def test_code_digest_of_unchanged_sources_is_read_and_not_parsed(package, monkeypatch):
    (package / "__pycache__").mkdir(exist_ok=True)
    before = code_of()
    forget()
    monkeypatch.setattr(identity.Module, "parse", lambda *args, **kwargs: pytest.fail("parsed again"))
    assert code_of() == before


@pytest.mark.slow
def test_code_digest_ignores_a_damaged_stored_digest(package):
    (package / "__pycache__").mkdir(exist_ok=True)
    before = code_of()
    (stored,) = (package / "__pycache__").glob("code-digest-*.txt")
    stored.write_text("damaged")
    forget()
    assert code_of() == before
