"""Documentation site: generated reference, navigation and links."""

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
from scripts import reference
from scripts.build_docs import DOCS, ELSEWHERE, ROOT
from scripts.index_commands import PANELS

WRITTEN = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
TEMPLATES = {page for page in WRITTEN if page.startswith("examples/")}  # copied by a user, not read on the site
PAGES = (WRITTEN - TEMPLATES) | set(ELSEWHERE.values())
SOURCES = sorted({f"docs/{page}" for page in WRITTEN} | ELSEWHERE.keys() | {"README.md"})
PYTHON_PAGE = "docs/reference/python.md"  # its headings are made from docstrings
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")


def leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for part in (nav.values() if isinstance(nav, dict) else nav) for leaf in leaves(part)]


def committed(page: str) -> str:
    return (DOCS / "reference" / f"{page}.md").read_text()


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


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(reference.PAGES))
def test_page_made_from_the_code_is_current(page):
    assert committed(page.removesuffix(".md")) == reference.PAGES[page](), "old: run `make reference`"


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as in the repository and on the site."""
    titles = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("page", SOURCES)
def test_links_of_a_page_have_targets(page):
    source = ROOT / page
    targets = [
        ((source.parent / path).resolve() if path else source, anchor) for path, anchor in LINK.findall(prose(source))
    ]
    broken = [
        (target.relative_to(ROOT).as_posix(), anchor)
        for target, anchor in targets
        if not target.exists()
        or (anchor and target != ROOT / PYTHON_PAGE and anchor not in anchors(target))
        or (page != "README.md" and not on_site(target))
    ]
    assert broken == []


def on_site(target: Path) -> bool:
    return target.is_relative_to(DOCS) or target.relative_to(ROOT).as_posix() in ELSEWHERE


def test_routes_page_has_every_route_and_the_fields_of_bodies():
    text = committed("routes")
    assert text.count("\n### `") == 87
    assert "### `POST /api/nemorl/train`" in text
    assert "| `total_timesteps` | body | integer or null | Steps of each fold and seed" in text
    assert "Ours" in text


@pytest.mark.slow
def test_components_page_has_every_member_and_field():
    text = committed("components")
    sections = re.split(r"^### ", text, flags=re.MULTILINE)
    members = [member for family in COMPONENTS for member in family_members(family)]
    assert [section.partition("\n")[0] for section in sections[1:]] == [f"`{member.kind}`" for member in members]
    for member, section in zip(members, sections[1:], strict=True):
        assert all(f"| `{field.name}` |" in section for field in member.fields)


def test_tables_page_has_every_table_and_column():
    sections = {part.partition("\n")[0]: part for part in re.split(r"^### ", committed("tables"), flags=re.MULTILINE)}
    for table in TABLES:
        assert all(f"| `{name}` |" in sections[table.name] for name in table.schema)


@pytest.mark.slow
def test_documents_page_has_every_json_output_and_its_fields():
    page = committed("documents")
    sections = {part.partition("\n")[0]: part for part in re.split(r"^###? ", page, flags=re.MULTILINE)}
    for command, kind in reference.DOCUMENTS.items():
        schema = TypeAdapter(kind).json_schema()
        assert all(f"| `{name}` |" in sections[f"`{command}`"] for name in schema.get("properties", {}))
        named = {f"[{name}](#{name.lower()})" for name in schema.get("$defs", {})}
        assert all(link[1 : link.index("]")] in sections for link in named if link in page)
    aliases = {f"nvtrader {family.command}" for family in FAMILIES if family.alone}  # groups alone, and one decision
    aliases |= {f"nvtrader plans {kind}" for kind in ("approve", "override", "reject", "skip", "equal")}
    described = {re.sub(r" --.*$", "", name) for name in reference.DOCUMENTS} | {
        "nvtrader sql"
    }  # the columns of the query
    assert described - aliases - {"nvtrader schema"} == json_commands(get_command(app), "nvtrader") - aliases


def test_steps_of_what_happens_when_are_places_of_the_page():
    page = (ROOT / "nvtrader_pipelines/service/api/page/templates/page.html.j2").read_text()
    assert [place for _, _, place in reference.STEPS.values() if place and f'id="{place}"' not in page] == []
    assert reference.picture().count(" --> ") == len(reference.STEPS) - 1


def test_commands_page_has_every_command():
    page = committed("commands")
    titles = re.findall(r"^##+ `(nvtrader [^`]+)`$", page, flags=re.MULTILINE)
    assert {*titles, "nvtrader"} == command_names(get_command(app), "nvtrader")
    listed = page.partition("**Commands**:")[2].partition("\n## ")[0]
    assert re.findall(r"^\* `([a-z]+)`", listed, flags=re.MULTILINE) == [
        name for each in PANELS.values() for name in each
    ]
    assert re.findall(r"^(\w+):$", listed, flags=re.MULTILINE) == list(PANELS)
