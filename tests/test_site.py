"""Documentation site: generated reference, navigation and links."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.main import get_command

from nvtrader_pipelines.service.api.app import FAMILIES
from nvtrader_pipelines.service.cli.app import app
from nvtrader_pipelines.service.documents.catalogue import FAMILIES as COMPONENTS
from nvtrader_pipelines.service.documents.catalogue import family_members
from nvtrader_pipelines.storage.tables import TABLES
from scripts.build_docs import (
    DOCUMENTS,
    ELSEWHERE,
    MADE,
    STEPS,
    commands,
    components,
    documents,
    picture,
    routes,
    tables,
)
from scripts.index_commands import PANELS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WRITTEN = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
TEMPLATES = {page for page in WRITTEN if page.startswith("examples/")}  # copied by a user, not read on the site
PAGES = (WRITTEN - TEMPLATES) | MADE.keys() | set(ELSEWHERE.values())


def leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for part in (nav.values() if isinstance(nav, dict) else nav) for leaf in leaves(part)]


def command_names(command: Any, path: str) -> set[str]:
    names = {path}
    for name, inner in getattr(command, "commands", {}).items():
        names |= command_names(inner, f"{path} {name}")
    return names


def json_commands(command: Any, path: str) -> set[str]:
    names = {path for parameter in command.params if parameter.name == "as_json"}
    for name, inner in getattr(command, "commands", {}).items():
        names |= json_commands(inner, f"{path} {name}")
    return names


def test_navigation_has_every_page_once():
    nav = leaves(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    assert sorted(nav) == sorted(PAGES)


@pytest.mark.parametrize("page", sorted(WRITTEN))
def test_links_of_a_page_have_targets(page):
    folder = (DOCS / page).parent
    targets = re.findall(
        r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", (DOCS / page).read_text(), flags=re.DOTALL)
    )
    found = [(folder / target).resolve().relative_to(DOCS).as_posix() for target in targets]
    assert [path for path in found if path not in PAGES and not (DOCS / path).is_file()] == []


def test_routes_page_has_every_route_and_the_fields_of_bodies():
    text = routes()
    assert text.count("\n### `") == 66
    assert "### `POST /api/nemorl/train`" in text
    assert "| `total_timesteps` | body | integer or null | Steps of each fold and seed" in text
    assert "Ours" in text


def test_components_page_has_every_member_and_field():
    text = components()
    sections = re.split(r"^### ", text, flags=re.MULTILINE)
    by_anchor = {found[1]: section for section in sections if (found := re.search(r"\{ #(\S+) \}", section))}
    known = {f"{family}-{member.kind}": member for family in COMPONENTS for member in family_members(family)}
    assert by_anchor.keys() == known.keys()
    for anchor, member in known.items():
        assert all(f"| `{field.name}` |" in by_anchor[anchor] for field in member.fields)


def test_tables_page_has_every_table_and_column():
    sections = {part.partition("\n")[0]: part for part in re.split(r"^### ", tables(), flags=re.MULTILINE)}
    for table in TABLES:
        assert all(f"| `{name}` |" in sections[table.name] for name in table.schema)


def test_documents_page_has_the_schema_of_every_json_output():
    schemas = re.findall(r"^```json\n(.*?)\n```$", documents(), flags=re.MULTILINE | re.DOTALL)
    assert [json.loads(schema) for schema in schemas] == [
        TypeAdapter(kind).json_schema() for kind in DOCUMENTS.values()
    ]
    aliases = {f"nvtrader {family.command}" for family in FAMILIES if family.alone}  # groups alone, and one decision
    aliases |= {f"nvtrader plans {kind}" for kind in ("approve", "override", "reject", "skip", "equal")}
    described = {re.sub(r" --.*$", "", name) for name in DOCUMENTS} | {"nvtrader sql"}  # the columns of the query
    assert described - aliases - {"nvtrader schema"} == json_commands(get_command(app), "nvtrader") - aliases


def test_steps_of_what_happens_when_are_places_of_the_page():
    page = (ROOT / "nvtrader_pipelines/service/api/page/templates/page.html.j2").read_text()
    assert [place for _, _, place in STEPS.values() if place and f'id="{place}"' not in page] == []
    assert picture().count(" --> ") == len(STEPS) - 1


@pytest.mark.slow
def test_commands_page_has_every_command():
    page = commands()
    titles = re.findall(r"^##+ `(nvtrader [^`]+)`$", page, flags=re.MULTILINE)
    assert {*titles, "nvtrader"} == command_names(get_command(app), "nvtrader")
    listed = page.partition("**Commands**:")[2].partition("\n## ")[0]
    assert re.findall(r"^\* `([a-z]+)`", listed, flags=re.MULTILINE) == [
        name for each in PANELS.values() for name in each
    ]
    assert re.findall(r"^(\w+):$", listed, flags=re.MULTILINE) == list(PANELS)
