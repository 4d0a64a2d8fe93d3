"""Pages of worlds: experiments with their results, and one with those of its seeds."""

from nvtrader_pipelines.components.document import frame_of
from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import Format, print_line, write_rows

COLUMNS = ("name", "world", "agent", "status", "mean", "reference", "difference", "problem")
WORLD_FIGURES = (
    *("seed", "n_episodes", "mean", "mean_low", "mean_high"),
    *("reference", "reference_mean", "difference", "difference_low", "difference_high"),
)


def print_worlds(answer: Answer) -> None:
    """Print experiments in worlds with their results."""
    if answer.document.is_empty():
        print_line("no experiment in a world yet: write data/worlds/NAME.yaml; the guide Beyond portfolios has two")
        return
    write_rows(answer.document.select(COLUMNS), Format.TABLE, ("problem",))


def print_world(answer: Answer) -> None:
    """Print the verdict on an experiment, then the results of its seeds; the first row is their mean."""
    document = answer.document
    print_line(document.verdict)
    if document.results:
        write_rows(frame_of(document.results).select(WORLD_FIGURES), Format.TABLE)


PAGES = {"list": print_worlds, "show": print_world, "run": print_world}
