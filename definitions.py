"""The Dagster code location: every definition is listed in nvtrader_pipelines.orchestration."""

import dagster as dg

from nvtrader_pipelines.orchestration.definitions import build_defs


@dg.definitions
def defs() -> dg.Definitions:
    """Assets, checks, jobs, schedules and sensors over this checkout's data and warehouse."""
    return build_defs()
