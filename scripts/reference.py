"""Write the pages of the reference that are made from the code."""

import html
import json
import re
import subprocess
import sys
from collections.abc import Container, Sequence
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
from nvtrader_pipelines.service.operations.data import Data
from nvtrader_pipelines.service.operations.experiments import Experiments
from nvtrader_pipelines.service.operations.feedback import Feedback
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.service.operations.operation import operations_of
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies
from nvtrader_pipelines.service.operations.searches import Searches
from nvtrader_pipelines.service.tools.registry import TOOLS
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
TOOL_NAMES = {(tool.family, tool.method): name for name, tool in TOOLS.items()}
ROOT = Path(__file__).resolve().parents[1]


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
            parts += [f"### `{member.kind}`", member.doc]
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
    """Write the page of the documents of `--json`, with their fields and those of their parts."""
    parts = [
        "# Documents",
        "JSON that commands write with `--json`. A list is an array of the rows described here; a field that is not "
        "required is left out where it does not apply. The service's `/openapi.json` has the JSON Schemas of what its "
        "routes answer.",
    ]
    schemas = {f"`{command}`": TypeAdapter(model).json_schema() for command, model in DOCUMENTS.items()}
    definitions = {name: schema for one in schemas.values() for name, schema in one.get("$defs", {}).items()}
    named = {name: schema for name, schema in sorted(definitions.items()) if _is_part(schema)}
    schemas["Parts"] = {"description": "Documents within documents. One with a `kind` is a [component](components.md)."}
    for title, document in (*schemas.items(), *named.items()):
        schema = document
        while "items" in schema or "$ref" in schema:
            schema = schema.get("items") or definitions[schema["$ref"].rpartition("/")[2]]
        description = schema.get("description") or _kind(schema, named)
        parts += [f"{'###' if title in named else '##'} {title}", description.partition("\n")[0]]
        rows = [
            (f"`{name}`", _kind(field, named), field.get("description", ""))
            for name, field in schema.get("properties", {}).items()
        ]
        parts += [table(("field", "type", "meaning"), rows)] if rows else []
    return "\n\n".join(parts) + "\n"


def _is_part(schema: dict[str, Any]) -> bool:
    """Whether a schema is of a document within documents, not of a component."""
    return "properties" in schema and "const" not in schema["properties"].get("kind", {})


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
        "experiment, search, run, gate, plan, decision, pair, tuned run. `pipeline` is a `Pipeline`; a tool is what "
        "[an assistant](../guides/assistants.md) calls.",
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
                f"`{TOOL_NAMES[family, name]}`" if (family, name) in TOOL_NAMES else "",
            )
            for _, name, words, one in members
        ]
        parts += [f"## {family.__name__}", (family.__doc__ or "").partition("\n")[0]]
        parts.append(table(("use case", "command", "Python", "route", "tool"), rows))
    rows = [(one.text.partition("\n")[0], f"`{TOOL_NAMES[Data, name]}`") for name, one in operations_of(Data).items()]
    parts += ["## Tools alone", (Data.__doc__ or "").partition("\n")[0], table(("use case", "tool"), rows)]
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


def _kind(schema: dict[str, Any], linked: Container[str] = ()) -> str:
    """Type of a field in a schema, in words; names of the linked ones are links to their sections of the page."""
    if "anyOf" in schema or "oneOf" in schema:
        kinds = [_kind(one, linked) for one in schema.get("anyOf") or schema["oneOf"]]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name in linked else f"`{name}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'], linked)}"
    if "items" in schema:
        return f"list of {_kind(schema['items'], linked)}"
    return str(schema.get("const", schema.get("format", schema.get("type", "any"))))


PAGES = {
    "components.md": components,
    "tables.md": tables,
    "use-cases.md": use_cases,
    "commands.md": commands,
    "routes.md": routes,
    "documents.md": documents,
}


if __name__ == "__main__":
    for page, write in PAGES.items():
        (ROOT / "docs" / "reference" / page).write_text(write())
