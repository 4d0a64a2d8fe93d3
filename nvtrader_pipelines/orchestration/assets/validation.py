"""Validation: every result deflated for all trials."""

from collections.abc import Iterator

import dagster as dg

from nvtrader_pipelines.evaluation.trial_validation import Validation, headlines
from nvtrader_pipelines.figures import validation_figures
from nvtrader_pipelines.orchestration.assets.evaluation import EVALUATION_KEY
from nvtrader_pipelines.orchestration.partitions import all_partitions
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.runs.input_digests import contest_digest
from nvtrader_pipelines.runs.run_tables import join_warnings
from nvtrader_pipelines.scoreboard.overall_results import validation_result
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import OVERFITTING, RUNS, VALIDATION

DESCRIPTIONS = {
    "validation": "Every trial against zero, its best baseline and its anchor or 1/N, deflated for all trials.",
    "overfitting": "Probability that the best trial in sample ranks in the worse half out of sample (PBO).",
}


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            ["evaluation", name],
            deps=[all_partitions(EVALUATION_KEY)],
            description=description,
            group_name="evaluation",
            kinds={"iceberg", "polars"},
            code_version="1",
        )
        for name, description in DESCRIPTIONS.items()
    ],
    name="validate",
)
def validation(store: dg.ResourceParam[Store]) -> Iterator[dg.MaterializeResult]:
    """Deflate every trial for all trials on its market; estimate backtest overfitting."""
    result = validation_result(store, contest_digest(store))
    judged = Validation(result.frames[VALIDATION.table], result.frames[OVERFITTING.table])
    store.tables.replace(VALIDATION, judged.trials, {})
    store.tables.replace(OVERFITTING, judged.overfitting, {})
    trials, overfitting = headlines(judged)
    note = join_warnings(store.tables.read(RUNS, columns=["warnings"]))
    figures = validation_figures(judged.trials, judged.overfitting, note=note)
    pictures = store_pictures(store.home, "validation", figures)
    metadata = {"trials": dg.MetadataValue.md(markdown_table(trials)), **pictures}
    yield table_result(store, VALIDATION, len(judged.trials), metadata)
    table = dg.MetadataValue.md(markdown_table(overfitting))
    yield table_result(store, OVERFITTING, len(judged.overfitting), {"overfitting": table, **pictures})
