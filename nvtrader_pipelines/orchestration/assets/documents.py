"""Corpora: texts on results, for search as of a day."""

import dagster as dg
from dagster_duckdb import DuckDBResource

from nvtrader_pipelines.orchestration.assets.evaluation import EVALUATION_KEY
from nvtrader_pipelines.orchestration.assets.scoreboard import SCORECARDS_KEY
from nvtrader_pipelines.orchestration.partitions import all_partitions
from nvtrader_pipelines.orchestration.reports import markdown_table, table_result
from nvtrader_pipelines.research.corpora import trajectory_query, update_documents
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DOCUMENTS, EVALUATIONS
from nvtrader_pipelines.storage.views.published_file import read_objects, read_query
from nvtrader_pipelines.storage.views.view_definitions import view_body


@dg.asset(
    key=["research", "documents"],
    group_name="evaluation",
    kinds={"iceberg", "duckdb"},
    deps=[
        all_partitions(EVALUATION_KEY),
        all_partitions(["rl", "trajectories"]),
        ["evaluation", "validation"],
        ["evaluation", "scoreboard"],
        SCORECARDS_KEY,
    ],
    code_version="1",
)
def documents(store: dg.ResourceParam[Store], duckdb: DuckDBResource) -> dg.MaterializeResult:
    """Texts on runs, back-tests and trajectories by corpus, each with the first day on which it may be read."""
    with duckdb.get_connection() as connection:
        read_objects(connection, store.home)
        verdicts = read_query(connection, view_body(store.tables, EVALUATIONS))
        trajectories = read_query(connection, trajectory_query(store.tables))
    rows = update_documents(store, verdicts, trajectories, now().date())
    sizes = dg.MetadataValue.md(markdown_table(rows.group_by("corpus").len("documents").sort("corpus")))
    return table_result(store, DOCUMENTS, len(rows), {"corpora": sizes})
