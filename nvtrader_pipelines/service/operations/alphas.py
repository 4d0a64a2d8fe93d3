"""Alphas: formulas that may predict returns, and their evaluation."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.research.alphas import ListedAlpha, NewAlpha


class Alphas(Family):
    """Alphas: formulas that may predict returns, judged over all that were ever tried."""

    command, alone = "alphas", "list"
    examples = ("nvtrader alphas", "nvtrader alphas evaluate")

    @operation("nvtrader alphas new fallen '[neg, close_return]'")
    def new(
        self,
        name: Annotated[str, Field(max_length=63, description="Lower-case letters, digits and dashes.")],
        formula: Annotated[
            str, Field(max_length=4000, description="List of an operator and its inputs, such as [neg, close_return].")
        ],
        *,
        description: Annotated[str, Field(max_length=1000, description="What the formula is about, in a line.")] = "",
    ) -> "NewAlpha":
        """Write data/alphas/NAME.yaml with a formula; never overwrite a file.

        Raises:
            StorageError: if the name is invalid or taken, or the formula is not valid.
        """
        from nvtrader_pipelines.research.alphas import write_alpha

        return write_alpha(self.store.home, name, formula, description)

    @operation("nvtrader alphas list", "nvtrader alphas list --json", route="GET /api/alphas", is_kept=True)
    def list(self) -> "Annotated[pl.DataFrame, ListedAlpha]":
        """List every formula that was ever tried, with its evaluation on each source, and the alphas that were not."""
        from nvtrader_pipelines.research.alphas import list_alphas

        return list_alphas(self.store)

    @operation(
        "nvtrader alphas evaluate",
        "nvtrader alphas evaluate reversal --source landing",
        route="POST /api/alphas/evaluate",
        writes=True,
    )
    def evaluate(
        self,
        *names: Annotated[str, Field(max_length=63, description="Alphas of data/alphas; default: all.")],
        source: Annotated[
            str | None,
            Field(max_length=32, description="Source of prices; default: the only ingested one, or sample."),
        ] = None,
    ) -> "Annotated[pl.DataFrame, ListedAlpha]":
        """Correlate alphas with the returns of the five sessions after the next fill, and correct for all tried.

        The correlation is that of the ranks of a session's eligible names; its mean has the p value of Newey and West.
        The p values of all formulas that were ever evaluated on the source, deleted ones too, are adjusted for one
        another by Benjamini and Hochberg. A formula is one trial on a source, however often and by whatever name it is
        evaluated.

        Raises:
            NotFoundError: if there is no such alpha, or none at all.
            StorageError: if a file is not a valid alpha, or the source is not ingested.
        """
        from nvtrader_pipelines.evaluation.step_generators import drain
        from nvtrader_pipelines.research.alphas import evaluate_alphas

        with self._progress() as on_progress:
            return drain(evaluate_alphas(self.store, names, source), on_progress)
