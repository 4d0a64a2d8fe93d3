"""Names in the source documents: every name of ours exists, none marked not built or left out does."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from pydoc import locate
from typing import NamedTuple

import gymnasium
import pytest
from typer.main import get_command

import nvtrader_pipelines.envs  # registers the environment
import nvtrader_pipelines.worlds  # noqa: F401 - registers the others
from nvtrader_pipelines.components.component import aliases_of, kind_of, members, whole_document
from nvtrader_pipelines.experiments.designs import value_at
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.service.cli.app import app
from nvtrader_pipelines.service.documents.catalogue import FAMILIES
from nvtrader_pipelines.service.tools.registry import TOOLS
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.schema import TABLES as LEDGER_TABLES
from nvtrader_pipelines.storage.tables import TABLES
from nvtrader_pipelines.storage.tables.research import SPANS
from tests.test_site import DOCS, PAGES, ROOT, command_names, committed

ABSENT = {"not built yet", "left out on purpose"}
DEFINITIONS = (ROOT / "tests" / "orchestration" / "definitions.txt").read_text()  # equal to Dagster's, by its test
MEMBERS = {family: {kind_of(member): member for member in members(union)} for family, union in FAMILIES.items()}
COLUMNS = {
    **{table.name: set(table.schema.names()) for table in (*TABLES, SPANS)},
    **{f"ledger.{table.name}": set(table.columns.keys()) for table in LEDGER_TABLES},
}
COMMANDS = command_names(get_command(app), "nvtrader")
HOME = Home(Path("/home"))
HOME_PATHS = {
    path.relative_to(HOME.root).as_posix() for name in vars(Home) if isinstance(path := getattr(HOME, name), Path)
}


class Row(NamedTuple):
    """Row of the page."""

    names: str
    documents: str
    ours: str
    note: str


def rows() -> list[Row]:
    """Rows of the tables of names."""
    tables = re.findall(
        r"^\| name in the source \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)",
        (DOCS / "reference" / "names.md").read_text(),
        re.MULTILINE,
    )
    return [Row(*map(str.strip, line.strip("|").split("|"))) for table in tables for line in table.splitlines()]


def spans(cell: str) -> list[str]:
    """Texts in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def has_field(path: str) -> bool:
    """Whether an experiment has a field at a dotted path."""
    try:
        value_at(whole_document(ExperimentSpec(name="a")), path)
    except (KeyError, TypeError):
        return False
    return True


def has_member(family: str, name: str) -> bool:
    """Whether a family has a kind, or a field `kind.field`."""
    kind, _, field = name.partition(".")
    member = MEMBERS[family].get(kind)
    return member is not None and (not field or field in member.model_fields)


def has_definition(reference: str) -> bool:
    """Whether Dagster has an asset, check, job, schedule or sensor."""
    return re.search(rf"^{re.escape(reference)}(: .*)?$", DEFINITIONS, re.MULTILINE) is not None


IN_DAGSTER = {"asset", "check", "job", "schedule", "sensor"}
CHECKS: dict[str, Callable[[str], bool]] = {  # by the first word of a name of ours
    "table": COLUMNS.__contains__,
    "column": lambda name: name.rpartition(".")[2] in COLUMNS.get(name.rpartition(".")[0], ()),
    "command": COMMANDS.__contains__,
    "python": lambda name: locate(name) is not None,
    "field": has_field,
    "environment": lambda name: name in gymnasium.registry,
    "file": lambda path: path in HOME_PATHS or (ROOT / path).exists(),
    "page": PAGES.__contains__,
    "route": lambda name: f"### `{name}`" in committed("routes"),
    "tool": TOOLS.__contains__,
}


def exists(reference: str) -> bool:
    """Whether a name of ours, as the page writes it, exists."""
    sort, _, name = reference.partition(" ")
    if sort in IN_DAGSTER:
        return has_definition(reference)
    if sort.removesuffix(":") in MEMBERS:
        return has_member(sort.removesuffix(":"), name)
    return sort in CHECKS and CHECKS[sort](name)


def is_typed(span: str) -> bool:
    """Whether a text of a note is a name of ours."""
    sort = span.partition(" ")[0]
    return " " in span and sort.removesuffix(":") in {*IN_DAGSTER, *CHECKS, *MEMBERS}


def plain(name: str) -> str:
    """Letters and digits of a name in lower case, which LLMAgent, LlmAgent and llm_agent share."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def sources() -> str:
    """Code of the package."""
    return "\n".join(path.read_text() for path in (ROOT / "nvtrader_pipelines").rglob("*.py"))


@cache
def built() -> frozenset[str]:
    """Plain names of what the package has."""
    components = [member for own in MEMBERS.values() for member in own.values()]
    names = {name for member in components for name in (kind_of(member), *aliases_of(member), *member.model_fields)}
    names |= {part for table in COLUMNS for part in (table, table.rpartition(".")[2])}
    names |= {command.removeprefix("nvtrader ") for command in COMMANDS}
    names |= set(re.findall(r"^(?:asset|job|schedule|sensor) (?:\w+/)?(\w+)", DEFINITIONS, re.MULTILINE))
    names |= set(re.findall(r"^(?:class|def) (\w+)", sources(), re.MULTILINE))
    return frozenset(map(plain, names))


def is_built(name: str) -> bool:
    """Whether a name of a source exists here: a route or path as text in the code, another as a name."""
    path = name.rpartition(" ")[2].rstrip("/")
    return path in sources() if "/" in path else plain(name) in built()


ROWS = rows()
OURS = sorted(
    {
        *(span for row in ROWS for span in spans(row.ours)),
        *filter(is_typed, (span for row in ROWS for span in spans(row.note))),
    }
)
UNBUILT = {label: sorted({name for row in ROWS if row.ours == label for name in spans(row.names)}) for label in ABSENT}


def test_page_has_rows_with_a_name_and_a_document():
    assert len(ROWS) > 200
    documents = {"Continuous RL", "hybrid", "RL framework", "evaluation plan"}
    assert all(set(row.documents.split(", ")) <= documents for row in ROWS)
    assert [row for row in ROWS if not row.names or not (row.ours in ABSENT or spans(row.ours))] == []


def test_every_name_of_ours_on_the_page_exists():
    assert [span for span in OURS if not exists(span)] == []


def test_names_of_phases_one_to_five_are_built():
    phases = (
        "differential_sharpe differential_downside implementation_shortfall running_inventory exp_utility hindsight "
        "dp_distillation almgren_chriss_residual avellaneda_stoikov_residual alphaswarm_rl.analytical "
        "tradesim_algotrading tradesim_portfolio tradesim_execution tradesim_hft finagent_trading eiie deeptrader "
        "investor_imitator eteo opd deepscalper hft_ddqn ppo_inhouse eiie_conv sagcn market_scorer hft_qnet "
        "eteo_dual_head pd_dual_rnn sarl_lstm"
    )
    built = {name for row in ROWS if row.ours not in ABSENT for name in spans(row.names)}
    assert {*phases.split()} - built == set()


@pytest.mark.parametrize("label", sorted(ABSENT))
def test_names_that_are_absent_do_not_exist(label):
    assert UNBUILT[label]
    assert [name for name in UNBUILT[label] if is_built(name)] == []


@pytest.mark.parametrize(
    "name", ["PPOAgent", "exp_utility", "rl.runs", "scoreboard update", "data/audit/", "eod_ingest"]
)
def test_existing_name_counts_as_built(name):
    assert is_built(name)


@pytest.mark.parametrize(
    "reference", ["agents: nobody", "agents: ppo.nothing", "asset rl/none", "column rl.runs.none", "python json.none"]
)
def test_missing_name_of_ours_is_found(reference):
    assert not exists(reference)


def test_every_alias_is_on_the_page_with_its_kind():
    listed = {
        (name, span) for row in ROWS if "alias" in row.note for name in spans(row.names) for span in spans(row.ours)
    }
    aliases = {
        (alias, f"{family}: {kind}")
        for family, own in MEMBERS.items()
        for kind, member in own.items()
        for alias in aliases_of(member)
    }
    assert aliases
    assert aliases <= listed
