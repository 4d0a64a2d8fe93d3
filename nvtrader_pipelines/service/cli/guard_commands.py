"""`nvtrader guards`: compare the guards of a weight pipeline with none."""

from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.options import with_examples
from nvtrader_pipelines.service.cli.output import write_json
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.service.open_home import open_store
from nvtrader_pipelines.service.output_paths import picture_path

EXAMPLE = "nvtrader guards compare data/experiments/guards-initial.yaml"
app = typer.Typer(
    name="guards",
    help="Guards of a weight pipeline: what they did, and whether they help.",
    epilog=with_examples(EXAMPLE),
    no_args_is_help=True,
)


@command(app.command, EXAMPLE, "nvtrader guards compare guards-initial --sessions 63 -o guards.png")
def compare(
    file: Annotated[str, typer.Argument(help="YAML file of an experiment that ran, or its name in data/experiments.")],
    *,
    sessions: Annotated[int, typer.Option("--sessions", min=2, help="Sessions in a slice.")] = 42,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture to write, .png or .svg; default: none.")
    ] = None,
    as_json: bool,
) -> None:
    """Compare a run with its guards and without, on slices of its tests that do not overlap.

    In each slice the policies of the fold in force open an account in cash with the guards and one without. Beside them
    is the best baseline of the run's verdict, known in hindsight only. The readiness is ready, harmful or open. The
    timing must be gymrl_guard, loss_shutdown or regime_guard. Nothing is trained or stored.
    """
    from nvtrader_pipelines.evaluation.step_generators import drain
    from nvtrader_pipelines.runs.guard_walk import draw_guard_slices, walk_guards
    from nvtrader_pipelines.service.cli.pages.guard_page import print_guards
    from nvtrader_pipelines.service.documents.experiment_facts import read_named_experiment
    from nvtrader_pipelines.service.documents.guard_facts import guards_document
    from nvtrader_pipelines.service.progress_display import show_progress

    store = open_store()
    picture = picture_path(output, output) if output else None
    steps = walk_guards(store, read_named_experiment(store.home, file), sessions)
    with show_progress(wide_console(), quiet=as_json) as on_progress:
        walk = drain(steps, on_progress)
    if picture:
        draw_guard_slices(walk, picture)
    document = guards_document(walk, picture)
    if as_json:
        write_json(document.model_dump(mode="json"))
    else:
        print_guards(document)
