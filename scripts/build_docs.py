"""Build the documentation site: the pages of `docs/` beside a reference made from the code."""

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from nvtrader_pipelines.runs.experiment_document import SmokeDocument
from nvtrader_pipelines.scoreboard.board import ScoredEntrant
from nvtrader_pipelines.service.api.access import Access
from nvtrader_pipelines.service.api.app import FAMILIES, create_app
from nvtrader_pipelines.service.cli.family_commands import words_of
from nvtrader_pipelines.service.cli.options import EPILOG
from nvtrader_pipelines.service.documents.catalogue import FAMILIES as COMPONENTS
from nvtrader_pipelines.service.documents.catalogue import family_members
from nvtrader_pipelines.service.documents.home_facts import CreatedHome, RestoredHome
from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.experiments import Experiments
from nvtrader_pipelines.service.operations.feedback import Feedback
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.service.operations.operation import operations_of
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies
from nvtrader_pipelines.service.operations.searches import Searches
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.schema import TABLES as LEDGER_TABLES
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import TABLES
from nvtrader_pipelines.storage.tables.research import SPANS
from scripts.index_commands import PANELS

OPERATIONS = [
    (family, name, words_of(family, name, one), one)
    for family in FAMILIES
    for name, one in operations_of(family).items()
]
DOCUMENTS: dict[str, Any] = {  # by the command that writes it with --json
    "nvtrader init": CreatedHome,
    "nvtrader restore": RestoredHome,
    **{
        " ".join(["nvtrader", *words]): one.row or one.returns
        for _, _, words, one in OPERATIONS
        if one.row or not one.is_frame
    },
    "nvtrader experiments run --smoke": SmokeDocument,
    "nvtrader scoreboard --history NAME": ScoredEntrant,
}
ROOT = Path(__file__).resolve().parents[1]
PAGES, SITE = ROOT / "build" / "docs", ROOT / "site"  # `docs_dir` and `site_dir` of zensical.toml
ELSEWHERE = {  # pages that lie outside `docs/`, for people who read the repository
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "data/accounts/README.md": "reference/accounts.md",
    "data/compliance/README.md": "reference/compliance.md",
}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def components() -> str:
    """Write the page of families, their members and the members' fields."""
    parts = [
        "# Components",
        "Members of every family with their fields; `nvtrader components FAMILY` shows the same. Aliases are "
        "[names in the source documents](names.md) that an experiment's file may use for a kind.",
    ]
    for family in COMPONENTS:
        parts.append(f"## {family.capitalize()}")
        for member in family_members(family):
            rows = [
                (f"`{field.name}`", f"`{field.default_text}`", field.allowed, field.comment) for field in member.fields
            ]
            parts += [f"### `{member.kind}` {{ #{family}-{member.kind} }}", member.doc]
            parts += [f"Aliases: {', '.join(f'`{name}`' for name in member.aliases)}."] if member.aliases else []
            parts += [table(("field", "default", "allowed", "meaning"), rows)] if rows else []
    return "\n\n".join(parts) + "\n"


def tables() -> str:
    """Write the page of tables with their columns."""
    parts = ["# Tables", "Every table that `nvtrader sql` reads; a schema of DuckDB is a namespace of Iceberg."]
    header = ("column", "type", "meaning")
    for namespace, members in groupby((*TABLES, SPANS), key=lambda each: each.namespace):
        parts.append(f"## {namespace}")
        for member in members:
            parts.append(f"### {member.name}")
            parts += [f"Partitioned by {', '.join(member.partition_by)}."] if member.partition_by else []
            columns = member.iceberg_schema().fields
            parts.append(table(header, [(f"`{each.name}`", str(each.field_type), each.doc or "") for each in columns]))
    parts += ["## ledger", "Mirrors of the ledger's database."]
    for member in LEDGER_TABLES:
        rows = [(f"`{column.name}`", str(column.type).lower(), column.doc or "") for column in member.columns]
        parts += [f"### ledger.{member.name}", table(header, rows)]
    return "\n\n".join(parts) + "\n"


def documents() -> str:
    """Write the page of the documents of `--json`, with their JSON Schemas."""
    parts = [
        "# Documents",
        "JSON that commands write with `--json`, and their schemas. A list is an array of the rows described here; a "
        "field that is not required is left out where it does not apply.",
    ]
    for command, model in DOCUMENTS.items():
        schema = json.dumps(TypeAdapter(model).json_schema(), indent=1)
        summary, code = "<summary>JSON Schema</summary>", f"```json\n{schema}\n```"
        parts += [f"## `{command}`", (model.__doc__ or "").partition("\n")[0]]
        parts.append(f'<details markdown="1">{summary}\n\n{code}\n\n</details>')
    return "\n\n".join(parts) + "\n"


STEPS = {  # what happens when: operation and its place on the page
    "market": (WholeHome, "ingest", "environment"),
    "experiment": (Experiments, "new", ""),
    "search": (Searches, "start", "autoresearch"),
    "run": (Experiments, "train", "training"),
    "gate": (Policies, "promote", "policies"),
    "plan": (Accounts, "trade", "decisions"),
    "decision": (Plans, "decide", "decisions"),
    "pair": (Feedback, "pairs", "agreement"),
    "tuned run": (Feedback, "train", "agreement"),
}


def picture() -> str:
    """Draw what happens when: the command, the route and the place on the page of each step."""
    lines = []
    for number, (title, (family, name, place)) in enumerate(STEPS.items()):
        one = operations_of(family)[name]
        doors = [f"nvtrader {' '.join(words_of(family, name, one))}", one.route, f"page: #{place}" if place else ""]
        lines.append(f'  s{number}["<b>{title}</b><br/>{"<br/>".join(filter(None, doors))}"]')
    arrows = " --> ".join(f"s{number}" for number in range(len(lines)))
    return "\n".join(["```mermaid", "flowchart TB", *lines, f"  {arrows}", "```"])


def use_cases(operations: Sequence[tuple[Any, ...]] = OPERATIONS) -> str:
    """Write the page of all use cases: the command, the Python call, the route and the tool of each."""
    parts = [
        "# Use cases",
        "Each use case is one function, which every door calls. They stand in the order of what happens when: market, "
        "experiment, search, run, gate, plan, decision, pair, tuned run. `pipeline` is a `Pipeline`; a tool is the "
        "name for a model that calls functions.",
        picture(),
    ]
    for family, members in groupby(operations, key=lambda entry: entry[0]):
        place = f"pipeline.{family.__name__.lower()}" if family.command else "pipeline"
        rows = [
            (
                one.text.partition("\n")[0],
                f"`nvtrader {' '.join(words)}`",
                f"`{place}.{name}`",
                f"`{one.route}`" if one.route else "",
                f"`{'_'.join(words).replace('-', '_')}`",
            )
            for _, name, words, one in members
        ]
        parts += [f"## {family.__name__}", (family.__doc__ or "").partition("\n")[0]]
        parts.append(table(("use case", "command", "Python", "route", "tool"), rows))
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """Write the page of the command line, from its own help."""
    app = "nvtrader_pipelines.service.cli.app"
    command = [sys.executable, "-m", "typer", app, "utils", "docs", "--name", "nvtrader"]
    text = html.unescape(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    text = re.sub(r"^\* `--help`: .*\n", "", text.replace(f"{EPILOG}\n", ""), flags=re.MULTILINE)
    text = re.sub(r"^(\* `[\w-]+`): .*\.\.\.$", r"\1", text, flags=re.MULTILINE)  # each has a section of its own
    text = text.replace("**Options**:\n\n\n", "")
    for panel, (first, *_) in PANELS.items():
        text = text.replace(f"\n* `{first}`", f"\n\n{panel}:\n\n* `{first}`", 1)
    return text.replace("# `nvtrader`\n", f"# Command line\n\n{EPILOG}\n", 1)


def routes() -> str:
    """Write the page of the service's routes, from its OpenAPI."""
    with TemporaryDirectory() as folder:
        document = create_app(Store(Home(Path(folder))), Access("127.0.0.1", 8000, ""), "").openapi()
    schemas = document["components"]["schemas"]
    parts = ["# Routes", document["info"]["description"]]
    for tag in document["tags"]:
        parts += [f"## {tag['name']}", tag["description"]]
        for path, methods in document["paths"].items():
            for method, route in methods.items():
                if route["tags"] == [tag["name"]]:
                    parts += [f"### `{method.upper()} {path}`", route["summary"]]
                    parts += _route_fields(route, schemas)
    return "\n\n".join(parts) + "\n"


def _route_fields(route: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """Tables of the parameters of a route and of the fields of its body."""
    rows = [
        (f"`{place['name']}`", place["in"], _kind(place["schema"]), place.get("description", ""))
        for place in route.get("parameters", ())
    ]
    body = next(iter(route.get("requestBody", {}).get("content", {}).values()), {}).get("schema", {})
    references = [
        schema["$ref"] for schema in (body, *body.get("anyOf", ()), *body.get("oneOf", ())) if "$ref" in schema
    ]
    for schema in (schemas[reference.rpartition("/")[2]] for reference in references):
        for name, field in schema.get("properties", {}).items():
            default = "" if name in schema.get("required", ()) else f"default `{json.dumps(field.get('default'))}`"
            rows.append(
                (f"`{name}`", "body", _kind(field), ", ".join(filter(None, (field.get("description"), default))))
            )
    return [table(("field", "in", "type", "meaning"), rows)] if rows else []


def _kind(schema: dict[str, Any]) -> str:
    """Type of a field in a schema, in words."""
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("const", schema.get("type", "any")))


MADE = {  # pages made from the code
    "reference/components.md": components,
    "reference/tables.md": tables,
    "reference/use-cases.md": use_cases,
    "reference/commands.md": commands,
    "reference/routes.md": routes,
    "reference/documents.md": documents,
}


def lay_out() -> None:
    """Put every page into one folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("theme"))
    for source, page in ELSEWHERE.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        (PAGES / page).write_text(text)
    for page, write in MADE.items():
        (PAGES / page).write_text(write())
    script = PAGES / "javascripts" / "mermaid.js"  # so that diagrams are drawn without a network
    script.write_bytes((files("mermaidx") / "assets" / "mermaid.js").read_bytes())


def build() -> None:
    """Build the site, and make it load nothing from elsewhere.

    Raises:
        ValueError: if a page loads a script or a style from elsewhere.
    """
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT, check=True)
    for page in SITE.rglob("*.html"):
        up = "../" * (len(page.relative_to(SITE).parts) - 1)
        text = page.read_text().replace("https://unpkg.com/iframe-worker/shim", f"{up}javascripts/iframe-worker.js")
        if found := re.search(r"<(script|link|img)[^>]* (src|href)=\"?https?://[^>]*>", text):
            raise ValueError(f"a page must load nothing from elsewhere, but {page} has {found[0]}")
        page.write_text(text)


if __name__ == "__main__":
    lay_out()
    build()
