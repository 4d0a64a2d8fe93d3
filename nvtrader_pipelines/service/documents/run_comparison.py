"""Comparison of runs: figures, shared sessions, and differences of specs."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.evaluation.statistics import STATISTICS
from nvtrader_pipelines.service.documents.document import Document, row_model
from nvtrader_pipelines.service.documents.experiment_facts import FieldDifference
from nvtrader_pipelines.service.documents.run_facts import KEYS, ensemble_rows, find_run_by_name
from nvtrader_pipelines.service.documents.short_samples import mask_short
from nvtrader_pipelines.storage.document_differences import document_differences
from nvtrader_pipelines.storage.ledger import Ledger, LedgerRun, schema
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS

COMPARED_COLUMNS = ("run_id", "partition_key", "kind", "status", "window_first", "window_last")
COMPARED_FIGURES = EVALUATIONS.schema.without(*KEYS, "policy", "kind", "period")
SHARED_FIGURES = TableSchema(
    Column("account", pl.String, "experiment, with the short id where it has several of the runs"),
    EVALUATIONS.schema.only("first_session", "last_session", "n_sessions", *STATISTICS),
    Column("sharpe_difference", pl.Float64, "Sharpe ratio less that of the first run; null for the first"),
    EVALUATIONS.schema.only("sharpe_difference_low", "sharpe_difference_high"),
)


class ComparedRun(row_model(TableSchema(schema.polars_schema(schema.RUNS).only(*COMPARED_COLUMNS), COMPARED_FIGURES))):
    """Run of a comparison, with the figures of its account over all test sessions."""


class SpecDifference(FieldDifference):
    """Field of a run's spec that differs from the first run's, on the left; null where missing."""

    run: str  # short id


class SharedAccount(row_model(SHARED_FIGURES)):
    """Figures of a run over the sessions that all compared runs walked."""


class SharedSessionsDocument(Document):
    """Figures of runs over the sessions they share, and the path of their picture."""

    figures: tuple[SharedAccount, ...]
    picture: Path | None  # null if there is nothing to draw
    note: str | None  # why there is nothing to draw


class ComparisonDocument(Document):
    """Comparison of runs, in the given order."""

    runs: tuple[ComparedRun, ...]
    spec_differences: tuple[SpecDifference, ...]
    shared: SharedSessionsDocument


def compare_named_runs(store: Store, names: Sequence[str], picture: Path) -> ComparisonDocument:
    """Compare runs, named as in `find_run_by_name`, and draw the sessions they share.

    Raises:
        NotFoundError: if a name matches no run or several.
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
    drawn = draw_comparison(store, runs, picture)
    facts = {
        "runs": compare_runs(store, runs).to_dicts(),
        "spec_differences": compare_specs(store.ledger, runs).to_dicts(),
        "shared": {"figures": mask_short(drawn.figures).to_dicts(), "picture": drawn.picture, "note": drawn.problem},
    }
    return ComparisonDocument.model_validate(facts)


def compare_runs(store: Store, runs: Sequence[LedgerRun]) -> pl.DataFrame:
    """Rows of runs, in the given order, with the figures of each experiment's account."""
    rows = pl.DataFrame(
        [{name: getattr(run, name) for name in COMPARED_COLUMNS} | {"status": run.shown_status} for run in runs]
    )
    verdicts = store.tables.read(EVALUATIONS, {"run_id": [run.run_id for run in runs]})
    figures = ensemble_rows(verdicts).select("run_id", *COMPARED_FIGURES)
    return rows.join(figures, on="run_id", how="left", maintain_order="left")


def compare_specs(ledger: Ledger, runs: Sequence[LedgerRun]) -> pl.DataFrame:
    """Rows of fields that differ from the first run's spec: run, field, left (first), right."""
    first = version_content(ledger, runs[0].partition_key)
    parts = [
        document_differences(first, version_content(ledger, run.partition_key)).select(
            pl.lit(short_id(run.run_id)).alias("run"), pl.all()
        )
        for run in runs[1:]
    ]
    return pl.concat(parts)
