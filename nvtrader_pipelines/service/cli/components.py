"""`nvtrader components` and `nvtrader schema`: what an experiment can be made of, for people and for editors."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.errors import one_sentence
from nvtrader_pipelines.service.cli.options import AsJson, Verbose
from nvtrader_pipelines.service.cli.tables import Format, wide_console, write_rows

Family = Annotated[str | None, typer.Argument(help="One family; without one, all of them.")]


def components(family: Family = None, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List the families of components, or the members of one with their fields, defaults and bounds."""
    import polars as pl

    from nvtrader_pipelines.service.documents.catalogue import FAMILIES, family_members

    with one_sentence(verbose=verbose):
        if family is None:
            rows = [(name, [member.kind for member in family_members(name)]) for name in FAMILIES]
            if as_json:
                sys.stdout.write(json.dumps(dict(rows), indent=1) + "\n")
            else:
                shown = [(name, ", ".join(kinds)) for name, kinds in rows]
                write_rows(pl.DataFrame(shown, schema=["family", "members"], orient="row"), Format.TABLE)
            return
        members = family_members(family)
        if as_json:
            sys.stdout.write(json.dumps([member.model_dump(mode="json") for member in members], indent=1) + "\n")
            return
        console = wide_console()
        for member in members:
            console.print(f"\n[bold]{member.kind}[/bold]  {member.doc}", highlight=False, soft_wrap=True)
            for field in member.fields:
                console.print(f"  {field.line}", markup=False, highlight=False, soft_wrap=True)


def schema(
    what: Annotated[str, typer.Argument(help="experiment, or a family of components.")] = "experiment",
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file to write.")] = None,
    verbose: Verbose = False,
) -> None:
    """Write the JSON Schema of an experiment or of a family, for editors that check YAML as it is typed."""
    from nvtrader_pipelines.service.documents.catalogue import schema as schema_of
    from nvtrader_pipelines.storage.files import write_atomically

    with one_sentence(verbose=verbose):
        text = json.dumps(schema_of(what), indent=1) + "\n"
        if output is None:
            sys.stdout.write(text)
        else:
            write_atomically(output, text.encode())
            wide_console().print(f"{output}", highlight=False, soft_wrap=True)
