"""Pages of alphas: figures of each, then why some have none."""

from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import Format, print_line, write_rows

COLUMNS = ("name", "source", "n_sessions", "mean_ic", "p_value", "adjusted_p_value", "is_significant", "note")


def print_alphas(answer: Answer) -> None:
    """Print alphas with their figures."""
    if answer.document.is_empty():
        print_line("no alpha yet: write data/alphas/NAME.yaml with a formula, such as `formula: [neg, close_return]`")
        return
    write_rows(answer.document.select(COLUMNS), Format.TABLE, ("note",))


def print_new(answer: Answer) -> None:
    """Print the file of a new alpha, and the next command."""
    print_line(f"wrote {answer.document.path}; evaluate it: nvtrader alphas evaluate {answer.document.name}")


PAGES = {"new": print_new, "list": print_alphas, "evaluate": print_alphas}
