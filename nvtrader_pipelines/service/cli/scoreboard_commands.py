"""`nvtrader scoreboard`: show the ranking of all entrants; `update` scores them again."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from nvtrader_pipelines.service.cli.exit_codes import FAILED, OK, print_error
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.cli.output import Format, write_rows
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.scoreboard import Scoreboard

if TYPE_CHECKING:
    import polars as pl

NO_ENTRANT = "no entrant is on the market of this contest; train an experiment on it, or name another contest"


def show(
    *,
    history: Annotated[str | None, typer.Option(metavar="NAME", help="All scorings of one entrant.")] = None,
    contest: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Score all entrants on the sessions of this contest and rank them."),
    ] = None,
    form: Format,
) -> None:
    """Show the ranking of the last update or of a contest, or the scorings of an entrant."""
    from nvtrader_pipelines.scoreboard.board import RankedEntrant, ScoredEntrant
    from nvtrader_pipelines.service.cli.pages.scoreboard_pages import print_history, print_ranking

    scoreboard = Scoreboard(OpenHome.find(is_quiet=form is not Format.TABLE))
    if contest is None and history is not None:
        rows, model, page = scoreboard.history(history), ScoredEntrant, partial(print_history, name=history)
    else:
        rows = scoreboard.show() if contest is None else scoreboard.rank(contest)
        model, page = RankedEntrant, print_ranking
    if form is Format.TABLE:
        page(rows)
    else:
        write_rows(rows, form, model=model)
    if contest is not None and (code := exit_code(rows)):
        raise typer.Exit(code)


def exit_code(ranking: "pl.DataFrame") -> int:
    """Exit code of a ranking, with an error if no entrant was scored, or every one is refused."""
    from nvtrader_pipelines.evaluation.short_samples import IS_RANKED

    if len(ranking.filter(IS_RANKED)):
        return OK
    refused = "no entrant is ranked; the note of each gives the reason"
    print_error(refused if len(ranking) else NO_ENTRANT, FAILED)
    return FAILED


app = family_app(Scoreboard, "scoreboard_pages", {"show": show}, {"update": exit_code})
