"""Worlds other than portfolios: their experiments trained, tested and compared with the references."""

import dagster as dg
import polars.selectors as cs
from pydantic import Field

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.figures import world_figure
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.run_pictures import pictures_of_worlds
from nvtrader_pipelines.runs.world_documents import list_worlds
from nvtrader_pipelines.runs.world_runs import run_worlds
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import WORLD_RESULTS

WORLD_RESULTS_KEY = dg.AssetKey(["evaluation", "world_results"])
_COLUMNS = ("name", "world", "agent", "status", "mean", "reference", "difference", "difference_low", "difference_high")


class WorldsConfig(dg.Config):
    """Experiments to run."""

    worlds: list[str] = Field(
        default=[],
        description="names of experiments of data/worlds; empty: all without a finished run of their version, code and "
        "market",
    )


@dg.asset(
    key=WORLD_RESULTS_KEY,
    group_name="worlds",
    kinds={"iceberg", "pytorch"},
    deps=[["gold", "market_panel"]],
    pool="training",
    code_version="1",
)
def world_results(
    context: dg.AssetExecutionContext,
    config: WorldsConfig,
    store: dg.ResourceParam[Store],
    progress: dg.ResourceParam[ProgressLog],
) -> dg.MaterializeResult:
    """Total reward of experiments in worlds, per seed and over the seeds, beside that of the world's reference."""
    launch = Launch(context.run.run_id, context.run.run_id)
    problems = drain(run_worlds(store, config.worlds, launch), progress.reporter(context))
    for name, problem in problems.items():
        context.log.warning("%s does not run: %s", name, problem)
    listed = list_worlds(store)
    rows = store.tables.read(WORLD_RESULTS, {"run_id": listed["run_id"].drop_nulls().to_list()})
    table = markdown_table(listed.select(_COLUMNS).with_columns(cs.float().round_sig_figs(4)))
    metadata = {
        "results": dg.MetadataValue.md(table),
        "warnings": dg.MetadataValue.json(problems),
        **store_pictures(
            store.home, "world_results", {"differences": world_figure(rows), **pictures_of_worlds(store, listed)}
        ),
    }
    return table_result(store, WORLD_RESULTS, len(rows), metadata)
