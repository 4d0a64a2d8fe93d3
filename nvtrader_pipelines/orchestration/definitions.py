"""All Dagster definitions of a home folder."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import dagster as dg
from dagster_duckdb import DuckDBResource

from nvtrader_pipelines.orchestration.assets import ASSETS
from nvtrader_pipelines.orchestration.console import console_logger
from nvtrader_pipelines.orchestration.event_files import VARIABLE, EventFiles
from nvtrader_pipelines.orchestration.jobs import JOBS
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.orchestration.portfolio_checks import PORTFOLIO_CHECKS
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.resources import DeskResource, StoreResource
from nvtrader_pipelines.orchestration.schedules import schedules_of
from nvtrader_pipelines.orchestration.sensors import SENSORS
from nvtrader_pipelines.orchestration.table_checks import CHECKS
from nvtrader_pipelines.orchestration.workflows import workflow_jobs
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.views.published_file import NO_DOWNLOADS

EXECUTOR = dg.multiprocess_executor.configured(
    {
        "max_concurrent": 2,
        "start_method": {"forkserver": {"preload_modules": ["nvtrader_pipelines.orchestration.definitions"]}},
    }
)


def build_defs(overrides: Mapping[str, Any] | None = None, home: Home | None = None) -> dg.Definitions:
    """Build the definitions of a home folder.

    Args:
        overrides: resources by name that replace the default ones.
        home: root folder with `data/` and `warehouse/`; by default found from the environment.
    """
    home = home or Home.find()
    resources = {
        "store": StoreResource(root=str(home.root)),
        "duckdb": DuckDBResource(database=":memory:", connection_config=NO_DOWNLOADS),
        "mlflow": MlflowTracking.at(home),
        "event_files": EventFiles(folder=os.environ.get(VARIABLE, "")),
        "progress": ProgressLog(),
        "desk": DeskResource(),
    }
    return dg.Definitions(
        assets=ASSETS,
        asset_checks=[*CHECKS, *PORTFOLIO_CHECKS],
        jobs=[*JOBS, *workflow_jobs(home, partial(build_defs, overrides, home))],
        schedules=schedules_of(home),
        sensors=SENSORS,
        resources={**resources, **(overrides or {})},
        executor=EXECUTOR,
        loggers={"console": console_logger},
    )
