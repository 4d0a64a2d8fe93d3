"""PRUDEX-Compass: six axes of every experiment, compared with the market average."""

import dagster as dg

from nvtrader_pipelines.evaluation.prudex import axis_scores, prudex_compass
from nvtrader_pipelines.figures import prudex_figures
from nvtrader_pipelines.orchestration.assets.evaluation import EVALUATION_KEY
from nvtrader_pipelines.orchestration.partitions import all_partitions
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.scoreboard.prudex_rows import read_prudex_record, stored_surrogate
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
)
def prudex(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Scores of every experiment on the six axes of PRUDEX; equal weight scores 50."""
    compass = prudex_compass(read_prudex_record(store), surrogate=stored_surrogate(store.judgements))
    store.tables.replace(PRUDEX, compass.table, {})
    pictures = store_pictures(store.home, "prudex", prudex_figures(compass))
    scores = dg.MetadataValue.md(markdown_table(axis_scores(compass.table)))
    return table_result(store, PRUDEX, len(compass.table), {"scores": scores, **pictures})
