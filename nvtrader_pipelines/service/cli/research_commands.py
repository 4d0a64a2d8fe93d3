"""`nvtrader research`: search spaces of AutoResearch."""

from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.options import with_examples
from nvtrader_pipelines.service.cli.output import Format, print_line, write_json, write_rows

app = typer.Typer(
    name="research",
    help="AutoResearch: search over the settings of an experiment.",
    epilog=with_examples("nvtrader research space", "nvtrader research space --mode unified"),
    no_args_is_help=True,
)


@command(
    app.command,
    "nvtrader research space",
    "nvtrader research space --mode unified --like ppo-growth",
    "nvtrader research space --json-schema",
    name="space",
)
def show_space(
    *,
    mode: Annotated[SearchMode, typer.Option("--mode", help="Groups of knobs to vary.")] = SearchMode.PPO_ONLY,
    like: Annotated[
        str | None, typer.Option("--like", help="Experiment to search around; default: one of the mode's own.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--space", help="YAML file of knobs: a dotted path to {low, high, log} each; default: the mode's."
        ),
    ] = None,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Write the JSON Schema of a delta instead.")
    ] = False,
    as_json: bool,
) -> None:
    """Show the knobs that a search varies, with bounds and the base's values."""
    import polars as pl

    from nvtrader_pipelines.service.documents.space_facts import find_space, space_document

    space = find_space(mode, like, file)
    if json_schema:
        write_json(space.json_schema)
        return
    document = space_document(space)
    if as_json:
        write_json(document.model_dump(mode="json"))
        return
    write_rows(pl.DataFrame([knob.model_dump() for knob in document.knobs]), Format.TABLE)
    for line in document.lines:
        print_line(line)
