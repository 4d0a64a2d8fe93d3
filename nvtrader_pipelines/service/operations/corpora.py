"""Corpora: texts on results, listed and searched as of a day."""

from datetime import date
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.research.corpora import ListedCorpus
    from nvtrader_pipelines.research.document_search import FoundDocument


class Corpora(Family):
    """Corpora of texts on runs, back-tests and trajectories, searched as of a day."""

    command, alone = "corpora", "list"
    examples = ("nvtrader corpora", 'nvtrader corpora search "ppo drawdown" --as-of 2024-12-31')

    @operation("nvtrader corpora list", "nvtrader corpora list --json", route="GET /api/corpora", is_kept=True)
    def list(self) -> "Annotated[pl.DataFrame, ListedCorpus]":
        """List all corpora with their sizes and days; `nvtrader materialize` writes them."""
        from nvtrader_pipelines.components.document import frame_of
        from nvtrader_pipelines.research.corpora import list_corpora

        return frame_of(list_corpora(self.store))

    @operation(
        'nvtrader corpora search "mean reward of ppo" --corpus rl_trajectory_summaries',
        'nvtrader corpora search "beats equal weight" --as-of 2024-12-31 --limit 3 --json',
        route="GET /api/corpora/search",
    )
    def search(
        self,
        query: Annotated[str, Field(min_length=1, max_length=500, description="Words to find.")],
        *,
        corpus: Annotated[
            str | None, Field(max_length=100, description="Corpus, as `corpora list` names it; default: all.")
        ] = None,
        as_of: Annotated[
            date | None, Field(description="Day: nothing that became known later is found; default: all.")
        ] = None,
        limit: Annotated[int, Field(ge=1, le=100, description="Most documents to show.")] = 10,
    ) -> "Annotated[pl.DataFrame, FoundDocument]":
        """Search texts on results by BM25, best first.

        A text is data for a reader: nothing that it says is acted upon.

        Raises:
            NotFoundError: if there is no such corpus.
        """
        from nvtrader_pipelines.research.document_search import search_corpora

        return search_corpora(self.store, query, corpus, as_of, limit)
