"""Names of the views of single runs."""

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, REWARD_DECOMPOSITION, TRAJECTORIES

BY_RUN = (TRAJECTORIES, EQUITY_CURVES, ACTION_LOGS, REWARD_DECOMPOSITION)


def run_views(run_id: str) -> list[str]:
    """Names of a run's views, `rl_<table>_run_<first 8 digits of its id>`.

    Runs whose ids begin with the same digits share them.
    """
    return [f"rl_{table.table}_run_{short_id(run_id)}" for table in BY_RUN]
