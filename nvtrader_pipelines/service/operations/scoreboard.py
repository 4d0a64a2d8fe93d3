"""Scoreboard: the ranking of all entrants, their scorings, and a new scoring."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.scoreboard.board import RankedEntrant, ScoredEntrant


class Scoreboard(Family):
    """All entrants on common sessions, ranked within contests."""

    command, alone = "scoreboard", "show"
    examples = ("nvtrader scoreboard", "nvtrader scoreboard --format csv", "nvtrader scoreboard --contest common")

    @operation("nvtrader scoreboard show --json", route="GET /api/scoreboard", is_kept=True)
    def show(self) -> "Annotated[pl.DataFrame, RankedEntrant]":
        """Show the ranking of all entrants as of the last update, by contest.

        Raises:
            NotFoundError: if nothing was scored yet.
        """
        from nvtrader_pipelines.scoreboard.board import read_ranking

        return read_ranking(self.store)

    @operation("nvtrader scoreboard update", "nvtrader scoreboard update --json", writes=True)
    def update(self) -> "Annotated[pl.DataFrame, RankedEntrant]":
        """Score all entrants on common sessions: runs, baselines, and files of data/entrants.

        Refused entrants are listed with the reason; if no entrant is ranked, the command exits with 1.
        """
        from nvtrader_pipelines.evaluation.short_samples import mask_short
        from nvtrader_pipelines.scoreboard.cards import score_all, update_scoreboard

        scored = score_all(self.store, datetime.now(UTC), self._report)
        self._report(f"new scorecards: {scored.n_new}, in {self.store.home.scorecards}")
        return mask_short(update_scoreboard(self.store))

    def rank(self, contest: str) -> "Annotated[pl.DataFrame, RankedEntrant]":
        """Score all entrants on the sessions of a contest and rank them; the scoreboard is left unchanged.

        Raises:
            StorageError: if there is no such contest.
            ValueError: if it lies outside the market.
        """
        from nvtrader_pipelines.evaluation.short_samples import mask_short
        from nvtrader_pipelines.scoreboard.cards import score_contest  # takes half a second to import

        return mask_short(score_contest(self.store, contest, datetime.now(UTC), self._report))

    def history(self, entrant: str) -> "Annotated[pl.DataFrame, ScoredEntrant]":
        """Read all scorings of one entrant, newest first.

        Raises:
            NotFoundError: if there is no such entrant.
        """
        from nvtrader_pipelines.evaluation.short_samples import mask_short
        from nvtrader_pipelines.scoreboard.board import read_history

        return mask_short(read_history(self.store, entrant))

    def _report(self, text: str) -> None:
        """Print a line of progress, unless the home is quiet."""
        from nvtrader_pipelines.service.consoles import wide_console

        if not self.opened.is_quiet:
            wide_console().print(text, style="dim", soft_wrap=True)
