"""Comparison of runs: figures, shared sessions, and differences of specs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvtrader_pipelines.components.columns import TableSchema
from nvtrader_pipelines.components.document import Document, row_model
from nvtrader_pipelines.runs.experiment_document import FieldDifference
from nvtrader_pipelines.runs.run_charts import SharedSessionsDocument
from nvtrader_pipelines.runs.run_queries import (
    COMPARED_COLUMNS,
    COMPARED_FIGURES,
    compare_runs,
    compare_specs,
    find_run_by_name,
    require_portfolios,
)
from nvtrader_pipelines.storage.ledger import schema
from nvtrader_pipelines.storage.store import Store


class ComparedRun(row_model(TableSchema(schema.polars_schema(schema.RUNS).only(*COMPARED_COLUMNS), COMPARED_FIGURES))):
    """Run of a comparison, with the figures of its account over all test sessions."""


class SpecDifference(FieldDifference):
    """Field of a run's spec that differs from the first run's, on the left; null where missing."""

    run: str  # short id


class ComparisonDocument(Document):
    """Comparison of runs, in the given order."""

    runs: tuple[ComparedRun, ...]
    spec_differences: tuple[SpecDifference, ...]
    shared: SharedSessionsDocument

    def plot(self) -> Any:
        """Plot equity and drawdown of the runs over the sessions that all have."""
        from nvtrader_pipelines.figures.plotly_figures import plot_equity

        curves = ((one.policy, one.sessions, one.equity, one.drawdown) for one in self.shared.curves)
        return plot_equity(curves, f"{len(self.runs)} runs on their shared sessions")


def compare_named_runs(store: Store, names: Sequence[str], picture: Path | None = None) -> ComparisonDocument:
    """Compare runs, named as in `find_run_by_name`; draw the sessions they share where a picture is named.

    Raises:
        NotFoundError: if a name matches no run or several.
        StorageError: if one is in a world.
        ValueError: if there are fewer than two runs, or one is named twice.
    """
    from nvtrader_pipelines.runs.run_pictures import draw_comparison

    if len(names) < 2:
        raise ValueError(
            f"a comparison needs at least two runs, but got {len(names)}; add another (see `nvtrader runs`)"
        )
    runs = [find_run_by_name(store.ledger, name) for name in names]
    if len({run.run_id for run in runs}) < len(runs):
        raise ValueError("a comparison needs different runs, but one is named twice; see `nvtrader runs`")
    for run in runs:
        require_portfolios(run)
    facts = {
        "runs": compare_runs(store, runs).to_dicts(),
        "spec_differences": compare_specs(store.ledger, runs).to_dicts(),
        "shared": draw_comparison(store, runs, picture),
    }
    return ComparisonDocument.model_validate(facts)
