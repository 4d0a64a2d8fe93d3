"""Validation: what every result is worth after all the trials that were made on the same market."""

from collections.abc import Iterator

import dagster as dg

from nvtrader_pipelines.evaluation.trial_validation import headlines, validate_sources
from nvtrader_pipelines.figures import validation_figures
from nvtrader_pipelines.orchestration.assets.evaluation import EVALUATION_KEY
from nvtrader_pipelines.orchestration.partitions import all_partitions
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.scoreboard.trial_history import trial_curves, trial_runs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, OVERFITTING, RUNS, VALIDATION

DEPS = [all_partitions(EVALUATION_KEY)]


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            ["evaluation", "validation"],
            deps=DEPS,
            description="Every trial against zero, its best baseline and its anchor, deflated for all trials ever run.",
            group_name="evaluation",
            kinds={"iceberg", "polars"},
            code_version="1",
        ),
        dg.AssetSpec(
            ["evaluation", "overfitting"],
            deps=DEPS,
            description="How often the best of all trials in sample is in the worse half out of sample.",
            group_name="evaluation",
            kinds={"iceberg", "polars"},
            code_version="1",
        ),
    ],
    name="validate",
)
def validation(store: dg.ResourceParam[Store]) -> Iterator[dg.MaterializeResult]:
    """Discount every trial for all the others on its market, and ask whether picking the best picks luck."""
    runs = trial_runs(store)
    judged = validate_sources(runs, trial_curves(store, runs), store.tables.read(EVALUATIONS))
    store.tables.replace(VALIDATION, judged.trials, {})
    store.tables.replace(OVERFITTING, judged.overfitting, {})
    notes = dict.fromkeys(warning for warnings in store.tables.read(RUNS)["warnings"] for warning in warnings)
    figures = validation_figures(judged.trials, judged.overfitting, note="; ".join(notes))
    trials, overfitting = headlines(judged)
    pictures = store_pictures(store.home, "validation", figures)
    told = {"trials": dg.MetadataValue.md(markdown_table(trials)), **pictures}
    yield table_result(store, VALIDATION, len(judged.trials), told)
    table = dg.MetadataValue.md(markdown_table(overfitting))
    yield table_result(store, OVERFITTING, len(judged.overfitting), {"overfitting": table, **pictures})
