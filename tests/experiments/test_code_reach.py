import ast
import random
import re
from collections import defaultdict
from pathlib import Path

import pytest

from nvtrader_pipelines.components.family import is_open
from nvtrader_pipelines.experiments import code_digest as identity
from nvtrader_pipelines.experiments.code_digest import DECIDING, ENGINE, PACKAGE, Program
from tests.contracts.families import FAMILIES, members
from tests.experiments.copied_package import FOLDER, SHIPPED, run_codes
from tests.experiments.mutations import apply_mutation, mutations


def test_run_reaches_neither_prudex_nor_stress_nor_validation():
    program = Program(DECIDING)
    modules = {name.removeprefix(f"{PACKAGE}.") for name, _ in program.reach([f"{PACKAGE}.{ENGINE}"])}
    assert {"policies.training", "envs.accounts", "evaluation.backtest", "experiments.spec"} <= modules
    unreached = ("evaluation.prudex", "evaluation.stress", "evaluation.trial_validation", "market.cleaning", "figures")
    assert not [name for name in modules if name.startswith(unreached)]


def places():
    """Positions of the statements by module: those that every shipped run reaches, and modules that none reaches."""
    program = Program((*DECIDING, "scoreboard"))
    engine = program.reach([f"{PACKAGE}.{ENGINE}"])
    reached = engine | program.reach({each for spec in SHIPPED for each in identity._components_of(spec)}, engine)
    by_module = defaultdict(set)
    for name, position in engine:
        by_module[name].add(position)
    return by_module, {name: None for name in program._sources if name not in {name for name, _ in reached}}


def draw(seed, n, by_module):
    """Draw modules, positions and numbers of mutations: their kinds in turn, each kind by chance."""
    drawn = defaultdict(list)
    for name, positions in sorted(by_module.items()):
        path = Path(*name.removeprefix(f"{PACKAGE}.").split("."))
        file = FOLDER / path / "__init__.py" if (FOLDER / path).is_dir() else FOLDER / path.with_suffix(".py")
        for number, (kind, line, _) in enumerate(mutations(ast.parse(file.read_bytes()), positions)):
            drawn[kind].append((file.relative_to(FOLDER), number, positions, line))
    generator = random.Random(seed)
    kinds = sorted(drawn)
    return [generator.choice(drawn[kinds[i % len(kinds)]]) for i in range(n)]


def changed_by(package, mutation, before):
    """Whether a mutation changes the code of each shipped experiment."""
    file, number, positions, _ = mutation
    content = (package / file).read_bytes()
    apply_mutation(package / file, number, positions)
    after = run_codes()
    (package / file).write_bytes(content)
    return [a != b for a, b in zip(after, before, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, pytest.param(60, marks=pytest.mark.nightly)])
def test_mutation_of_reached_code_changes_every_run(package, n):
    drawn = draw(7, n, places()[0])
    before = run_codes()
    unseen = [(str(each[0]), each[3]) for each in drawn if not all(changed_by(package, each, before))]
    assert len(drawn) == n
    assert unseen == []


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, pytest.param(30, marks=pytest.mark.nightly)])
def test_mutation_of_unreached_code_changes_no_run(package, n):
    drawn = draw(7, n, places()[1])
    before = run_codes()
    seen = [(str(each[0]), each[3]) for each in drawn if any(changed_by(package, each, before))]
    assert len(drawn) == n
    assert seen == []


ADDED = '''
_ADDED_LIMIT = 0.5


class AddedMember(Component):
    """Member that no experiment uses."""

    kind: Literal["added"] = "added"
    limit: float = _ADDED_LIMIT


'''


def add_member(package, family, *, in_own_module):
    """Add a class to a family: beside its union, or in a module of its own."""
    names = "|".join(member.__name__ for member in members(family))
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        for union in re.finditer(rf"^\w+ = Annotated\[\s*((?:(?:{names})[\s|]*)+),\s*Field\(disc", text, re.MULTILINE):
            if len(re.findall(r"\w+", union[1])) != len(members(family)):
                continue
            head, tail = text[: union.start()], text[union.start() :].replace(union[1], f"{union[1]} | AddedMember", 1)
            if in_own_module:
                (path.parent / "added_member.py").write_text(ADDED)
                dotted = ".".join((PACKAGE, *path.parent.relative_to(package).parts, "added_member"))
                path.write_text(f"{head}from {dotted} import AddedMember\n\n{tail}")
            else:
                path.write_text(f"{head}{ADDED}{tail}")
            return path.relative_to(package)
    raise AssertionError(f"no union of {names}")


OPEN = sorted(name for name, family in FAMILIES.items() if is_open(family))


@pytest.mark.slow
def test_members_added_to_all_open_families_change_no_shipped_run(package):
    before = run_codes()
    for family in OPEN:
        add_member(package, FAMILIES[family], in_own_module=False)
    assert run_codes() == before


@pytest.mark.nightly
@pytest.mark.parametrize("in_own_module", [True, False])
@pytest.mark.parametrize("family", OPEN)
def test_member_added_to_an_open_family_changes_no_shipped_run(package, family, in_own_module):
    before = run_codes()
    add_member(package, FAMILIES[family], in_own_module=in_own_module)
    assert run_codes() == before
