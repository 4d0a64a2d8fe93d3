"""The code location of an installed package, for a home folder without a checkout's `definitions.py`."""

import dagster as dg

from nvtrader_pipelines.orchestration.definitions import build_defs


@dg.definitions
def defs() -> dg.Definitions:
    """Assets, checks, jobs, schedules and sensors over the home folder found from the environment."""
    return build_defs()
