"""Code location of the installed package, for a home without its own `definitions.py`."""

import dagster as dg

from nvtrader_pipelines.orchestration.definitions import build_defs


@dg.definitions
def defs() -> dg.Definitions:
    """Build the definitions of the home folder found from the environment."""
    return build_defs()
