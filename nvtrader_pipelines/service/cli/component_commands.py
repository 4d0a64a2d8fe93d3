"""`nvtrader components` and `nvtrader schema`, which need no home."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from nvtrader_pipelines.service.cli.output import Format, write_json, write_rows
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.service.output_paths import require_file_path

Family = Annotated[str | None, typer.Argument(help="Family to show; default: list all families.")]
Kind = Annotated[str | None, typer.Argument(help="Kind, or an alias of it, to show alone.")]


def components(family: Family = None, kind: Kind = None, *, as_json: bool) -> None:
    """List the families of components, or the members of one with fields, defaults and bounds."""
    import polars as pl

    from nvtrader_pipelines.service.documents.catalogue import FAMILIES, family_members, part_problems

    for problem in part_problems():
        typer.echo(f"warning: {problem}", err=True)
    if family is None:
        rows = [(name, [member.kind for member in family_members(name)]) for name in FAMILIES]
        if as_json:
            write_json(dict(rows))
        else:
            shown = [(name, ", ".join(kinds)) for name, kinds in rows]
            write_rows(pl.DataFrame(shown, schema=["family", "members"], orient="row"), Format.TABLE)
        return
    members = family_members(family, kind)
    if as_json:
        write_json([member.model_dump(mode="json") for member in members])
        return
    console = wide_console()
    for member in members:
        console.print(Text.assemble("\n", (member.kind, "bold"), f"  {member.doc}"), soft_wrap=True)
        if member.aliases:
            console.print(f"  also: {', '.join(member.aliases)}", soft_wrap=True)
        for field in member.fields:
            console.print(f"  {field.line}", soft_wrap=True)


def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help="`experiment` or a family of components.")] = "experiment",
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File; default: standard output.")] = None,
) -> None:
    """Write the JSON Schema of an experiment or a family, for editors that check YAML."""
    from nvtrader_pipelines.service.documents.catalogue import json_schema_of
    from nvtrader_pipelines.storage.files import write_atomically

    document = json_schema_of(name)
    if output is None:
        write_json(document)
    else:
        write_atomically(require_file_path(output), f"{json.dumps(document, indent=1)}\n".encode())
        wide_console().print(f"{output}", soft_wrap=True)
