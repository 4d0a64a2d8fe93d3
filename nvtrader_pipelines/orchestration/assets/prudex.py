"""PRUDEX-Compass: six axes of every experiment, compared with the market average."""

import dagster as dg

from nvtrader_pipelines.evaluation.prudex import axis_scores
from nvtrader_pipelines.orchestration.assets.evaluation import EVALUATION_KEY
from nvtrader_pipelines.orchestration.partitions import all_partitions
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.runs.input_digests import contest_digest
from nvtrader_pipelines.scoreboard.overall_results import pictures_of, prudex_result
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import PRUDEX


@dg.asset(
    key=["evaluation", "prudex"],
    group_name="evaluation",
    kinds={"iceberg", "polars"},
    deps=[
        all_partitions(EVALUATION_KEY),
        all_partitions(["rl", "equity_curves"]),
        all_partitions(["rl", "action_logs"]),
        all_partitions(["gold", "returns"]),
        all_partitions(["gold", "features"]),
    ],
    code_version="1",
    op_tags={"dagster/priority": "-1"},  # last, since another process may be computing it
)
def prudex(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Scores of every experiment on the six axes of PRUDEX; equal weight scores 50."""
    result = prudex_result(store, contest_digest(store))
    rows = result.frames[PRUDEX.table]
    store.tables.replace(PRUDEX, rows, {})
    pictures = store_pictures(store.home, "prudex", pictures_of(result))
    scores = dg.MetadataValue.md(markdown_table(axis_scores(rows)))
    return table_result(store, PRUDEX, len(rows), {"scores": scores, **pictures})
